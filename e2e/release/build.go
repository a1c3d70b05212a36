package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// entry is a file of an archive, or a link to another one of its directory.
type entry struct {
	name string
	mode int64
	data []byte
	link string
}

// otherNames are links to the program: the plugin of kubectl, and what completes its command lines.
var otherNames = []string{"kubectl-ipvs", "kubectl_complete-ipvs"}

// find returns the content of a file that is there.
func find(files []entry, name string) []byte {
	i := slices.IndexFunc(files, func(e entry) bool { return e.name == name })
	return files[i].data
}

// compile builds the program for an architecture of Linux, static and stripped.
func compile(o options, arch, program string) error { return compileFor(o, "linux", arch, program) }

// compileFor builds the program for a platform.
func compileFor(o options, system, arch, program string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w "+o.ldflags, "-o", program, "./cmd/kube-ipvs")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOFLAGS=")
	return run(cmd)
}

// run runs a command, and fails with its output.
func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// documentation asks the program, built for this machine, for its manual pages and its
// completion scripts.
func documentation(o options, work string) ([]entry, error) {
	program := filepath.Join(work, "kube-ipvs")
	if err := compile(o, runtime.GOARCH, program); err != nil {
		return nil, err
	}
	if err := saysItsVersion(o, program); err != nil {
		return nil, err
	}
	man := filepath.Join(work, "man")
	if err := run(exec.Command(program, "man", man)); err != nil {
		return nil, err
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.8"))
	if err != nil || len(pages) == 0 {
		return nil, fmt.Errorf("no manual pages, error %w", err)
	}
	var files []entry
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Clean(page))
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: "man/man8/" + filepath.Base(page), mode: 0o644, data: text})
	}
	for shell, name := range map[string]string{"bash": "kube-ipvs", "zsh": "_kube-ipvs", "fish": "kube-ipvs.fish"} {
		text, err := exec.Command(program, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion of %s: %w", shell, err)
		}
		files = append(files, entry{name: "completion/" + shell + "/" + name, mode: 0o644, data: text})
	}
	return files, nil
}

// saysItsVersion holds the program against what it was built from: the linker silently ignores
// a variable that does not exist.
func saysItsVersion(o options, program string) error {
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		return fmt.Errorf("%s version: %w", program, err)
	}
	want := fmt.Sprintf("kube-ipvs %s %s linux/%s\ncommit %s of %s\n", o.version, runtime.Version(), runtime.GOARCH, o.commit, o.date.Format("2006-01-02T15:04:05Z"))
	if string(out) != want {
		return fmt.Errorf("%s version prints\n%swant\n%s", program, out, want)
	}
	return nil
}

// collect builds the program for an architecture and returns all files of its archive, sorted.
func collect(o options, arch, work string, pages []entry) ([]entry, error) {
	program := filepath.Join(work, "kube-ipvs")
	if err := compile(o, arch, program); err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(filepath.Clean(program))
	if err != nil {
		return nil, err
	}
	components, err := sbom(program, o.version)
	if err != nil {
		return nil, err
	}
	texts, err := licenses("linux", arch)
	if err != nil {
		return nil, err
	}
	files := append(slices.Clone(pages),
		entry{name: "kube-ipvs", mode: 0o755, data: binary}, entry{name: "kube-ipvs.cdx.json", mode: 0o644, data: components}, entry{name: "LICENSES.txt", mode: 0o644, data: texts})
	for _, name := range otherNames {
		files = append(files, entry{name: name, mode: 0o777, link: "kube-ipvs"})
	}
	for name, source := range map[string]string{
		"LICENSE": "LICENSE", "README.md": "README.md", "systemd/kube-ipvs.service": "manifests/systemd/kube-ipvs.service",
		"systemd/modules-load.conf": "manifests/package/modules-load.conf", "systemd/env": "manifests/package/env",
	} {
		text, err := os.ReadFile(filepath.Clean(source))
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: name, mode: 0o644, data: text})
	}
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return files, nil
}
