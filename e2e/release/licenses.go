package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// licenseFile matches the names of files that have to go with a program.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// licenses returns the licenses of the code of others in the program: those of Go and of each
// module. A module may have more of them between its root and a package that is used.
func licenses(system, arch string) ([]byte, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/kube-ipvs")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	l := ledger{texts: map[string][]byte{}, seen: map[string]bool{}}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	compiler := strings.TrimSpace(string(root))
	if err := l.add("Go "+runtime.Version(), compiler, compiler); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 {
			continue // of the standard library, or ours
		}
		if err := l.add(f[0]+" "+f[1], f[2], f[3]); err != nil {
			return nil, err
		}
	}
	return l.bytes(), nil
}

// ledger gathers the texts of licenses by the module and file that they are of.
type ledger struct {
	texts map[string][]byte
	seen  map[string]bool // directories, and modules that have a license
}

// add reads the licenses of a package, from its directory up to the root of its module.
func (l *ledger) add(module, root, dir string) error {
	for {
		if err := l.read(module, root, dir); err != nil {
			return err
		}
		if dir == root {
			break
		}
		dir = filepath.Dir(dir)
	}
	if !l.seen[module] {
		return fmt.Errorf("%s has no license in %s", module, root)
	}
	return nil
}

func (l *ledger) read(module, root, dir string) error {
	if l.seen[dir] {
		return nil
	}
	l.seen[dir] = true
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.IsDir() || !licenseFile.MatchString(f.Name()) || strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		path := filepath.Join(dir, f.Name())
		text, err := os.ReadFile(filepath.Clean(path))
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		l.texts[module+": "+name] = text
		l.seen[module] = l.seen[module] || dir == root
	}
	return nil
}

// bytes returns all texts under their headings, in order.
func (l *ledger) bytes() []byte {
	var names []string
	for name := range l.texts {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&out, "==== %s\n\n%s\n\n", name, bytes.TrimSpace(l.texts[name]))
	}
	return out.Bytes()
}
