package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machines are the architectures as ELF files name them.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "riscv64": elf.EM_RISCV,
}

// packagers names an architecture as each packager does.
var packagers = map[string]map[string]string{
	"deb": {"amd64": "amd64", "arm64": "arm64", "ppc64le": "ppc64el", "s390x": "s390x", "riscv64": "riscv64"},
	"rpm": {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"},
}

// installed is what every package has to have, by path.
var installed = []string{
	"usr/bin/kube-ipvs", "usr/lib/systemd/system/kube-ipvs.service", "usr/lib/modules-load.d/kube-ipvs.conf", "etc/kube-ipvs/env",
	"usr/share/man/man8/kube-ipvs.8.gz", "usr/share/man/man8/kube-ipvs-explain.8.gz", "usr/share/bash-completion/completions/kube-ipvs",
	"usr/share/fish/vendor_completions.d/kube-ipvs.fish", "usr/share/doc/kube-ipvs/copyright", "usr/share/doc/kube-ipvs/LICENSES.txt",
	"usr/share/doc/kube-ipvs/kube-ipvs.cdx.json",
}

// check reads all files of a release again.
func check(o options) error {
	sums, err := sumsOf(o.out)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(filepath.Join(o.out, "SHA256SUMS")); err != nil || !bytes.Equal(have, sums) {
		return fmt.Errorf("SHA256SUMS is not of the files beside it, error %w", err)
	}
	if got, want := strings.Count(string(sums), "\n"), 4*len(o.arches)+len(platforms(o))+2; got != want {
		return fmt.Errorf("%d files, want %d:\n%s", got, want, sums)
	}
	if err := checkChart(o); err != nil {
		return err
	}
	if err := checkPlugins(o); err != nil {
		return err
	}
	for _, arch := range o.arches {
		if err := checkArch(o, arch); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	fmt.Printf("release: %s of %s in %s\n%s", o.version, o.date.Format("2006-01-02 15:04:05"), o.out, sizes(o.out))
	return nil
}

func sizes(dir string) string {
	var out strings.Builder
	files, _ := os.ReadDir(dir) // it was read before
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			fmt.Fprintf(&out, "%8.1f MiB  %s\n", float64(info.Size())/(1<<20), f.Name())
		}
	}
	return out.String()
}

// checkArch wants one program in the archive, in the deb and in the rpm.
func checkArch(o options, arch string) error {
	base := fmt.Sprintf("kube-ipvs_%s_linux_%s", o.version, arch)
	text, err := os.ReadFile(filepath.Join(o.out, base+".tar.gz"))
	if err != nil {
		return err
	}
	files, err := unpack(bytes.NewReader(text))
	if err != nil {
		return err
	}
	have := map[string][]byte{}
	for _, f := range files {
		have[strings.TrimPrefix(f.name, base+"/")] = append(f.data, f.link...)
	}
	for _, name := range otherNames {
		if got := string(have[name]); got != "kube-ipvs" {
			return fmt.Errorf("%s is no link to the program, but %q", name, got)
		}
	}
	program := have["kube-ipvs"]
	if err := checkProgram(program, arch); err != nil {
		return err
	}
	for _, m := range []string{"github.com/spf13/cobra v", "Go go1."} {
		if !bytes.Contains(have["LICENSES.txt"], []byte("==== "+m)) {
			return fmt.Errorf("LICENSES.txt has nothing of %s", m)
		}
	}
	for _, packager := range []string{"deb", "rpm"} {
		if err := checkPackage(o, arch, packager, program); err != nil {
			return fmt.Errorf("%s: %w", packager, err)
		}
	}
	return nil
}

// checkProgram wants a static program for an architecture, all modules of which its list of
// components has.
func checkProgram(program []byte, arch string) error {
	e, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	if e.Machine != machines[arch] {
		return fmt.Errorf("the program is for %s, want %s", e.Machine, machines[arch])
	}
	if slices.ContainsFunc(e.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errors.New("the program is not static")
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return err
	}
	if len(info.Deps) == 0 {
		return errors.New("the program names no modules")
	}
	return nil
}

func checkPackage(o options, arch, packager string, program []byte) error {
	text, err := os.ReadFile(filepath.Join(o.out, packageName(o, arch, packager)))
	if err != nil {
		return err
	}
	read := map[string]func([]byte) (contents, error){"deb": readDeb, "rpm": readRPM}[packager]
	c, err := read(text)
	if err != nil {
		return err
	}
	version := packageVersion(o.version, o.date)
	if packager == "deb" {
		version += "-1"
	}
	if c.version != version || c.arch != packagers[packager][arch] {
		return fmt.Errorf("version %q for %q, want %q for %q", c.version, c.arch, version, packagers[packager][arch])
	}
	zsh := strings.TrimPrefix(zshCompletion[packager], "/") + "/_kube-ipvs"
	for _, name := range append(slices.Clone(installed), zsh) {
		if len(c.files[name]) == 0 {
			return fmt.Errorf("%s is missing or empty", name)
		}
	}
	for _, name := range otherNames {
		if got := string(c.files["usr/bin/"+name]); got != "kube-ipvs" && got != "/usr/bin/kube-ipvs" {
			return fmt.Errorf("usr/bin/%s is no link to the program, but %q", name, got)
		}
	}
	if got := c.files["usr/bin/kube-ipvs"]; sha256.Sum256(got) != sha256.Sum256(program) {
		return errors.New("another program than that of the archive")
	}
	return nil
}
