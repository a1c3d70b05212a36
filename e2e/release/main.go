// Program release makes the files of a release in a directory, and checks each of them by
// reading it again:
//
//	kube-ipvs_VERSION_linux_ARCH.tar.gz   the program, manual pages, completion, unit, licenses
//	kube-ipvs_VERSION_ARCH.deb, .rpm      the same as packages, made by nfpm
//	kube-ipvs_VERSION_linux_ARCH.cdx.json the modules in the program (CycloneDX)
//	kubectl-ipvs_VERSION_OS_ARCH.tar.gz   the same program as a plugin of kubectl
//	ipvs.yaml                             the manifest of the plugin for krew
//	kube-ipvs-VERSION.tgz                 the Helm chart
//	SHA256SUMS                            of all the others
//
// The files depend on the sources, the version and the Go that compiles them, and on nothing
// else: two runs make the same bytes, in whatever directory the sources are.
//
//	release -version v0.1.0 -commit ... -date 2026-11-28T12:00:00Z -nfpm ~/bin/nfpm -out bin/release
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// options are those of one release.
type options struct {
	version, commit string
	date            time.Time // date of the commit; every file in an archive has it
	arches          []string
	ldflags         string // sets version, commit and date
	out, nfpm       string
	maintainer      string
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		err = release(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release: FAILED:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var arches, date string
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.StringVar(&o.version, "version", "", "`VERSION`: the tag, or what git describe says")
	f.StringVar(&o.commit, "commit", "", "`HASH` of the commit")
	f.StringVar(&date, "date", "", "`TIME` of the commit, in RFC 3339")
	f.StringVar(&arches, "arches", "amd64,arm64,ppc64le,s390x,riscv64", "comma-separated `ARCHITECTURES` as Go names them")
	f.StringVar(&o.ldflags, "ldflags", "", "`FLAGS` for the linker that set version, commit and date")
	f.StringVar(&o.out, "out", "bin/release", "`DIRECTORY` for the files; it is emptied first")
	f.StringVar(&o.nfpm, "nfpm", "nfpm", "`PROGRAM` that makes packages")
	f.StringVar(&o.maintainer, "maintainer", "kube-ipvs authors", "`NAME` in the packages")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.date, err = time.Parse(time.RFC3339, date); err != nil {
		return o, fmt.Errorf("-date: %w", err)
	}
	if o.version == "" || o.commit == "" {
		return o, fmt.Errorf("-version %q and -commit %q may not be empty", o.version, o.commit)
	}
	o.date = o.date.UTC()
	o.arches = strings.Split(arches, ",")
	return o, nil
}

// release makes all files and checks them.
func release(o options) error {
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	pages, err := documentation(o, filepath.Join(work, "host"))
	if err != nil {
		return err
	}
	for _, arch := range o.arches {
		if err := one(o, arch, filepath.Join(work, arch), pages); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	if err := plugins(o, work); err != nil {
		return err
	}
	if err := chart(o); err != nil {
		return err
	}
	if err := writeSums(o.out); err != nil {
		return err
	}
	return check(o)
}

// one makes the files of one architecture.
func one(o options, arch, work string, pages []entry) error {
	files, err := collect(o, arch, work, pages)
	if err != nil {
		return err
	}
	base := fmt.Sprintf("kube-ipvs_%s_linux_%s", o.version, arch)
	if err := archive(filepath.Join(o.out, base+".tar.gz"), base, o.date, files); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, base+".cdx.json"), find(files, "kube-ipvs.cdx.json"), 0o644); err != nil { //nolint:gosec // it is published
		return err
	}
	return packages(o, arch, work, files)
}
