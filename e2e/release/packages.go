package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tagged matches a version as git describe prints it: v0.1.0, v0.1.0-rc.1, v0.1.0-12-g0123abc.
var tagged = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+?))?(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// packageVersion returns a version as dpkg and rpm order it. A candidate is older than its
// release, and commits after a tag are newer than it. A build without any tag is older than all.
func packageVersion(version string, date time.Time) string {
	m := tagged.FindStringSubmatch(version)
	if m == nil {
		return "0.0.0~" + date.Format("20060102.150405") + "." + strings.ReplaceAll(version, "-", ".")
	}
	out := m[1]
	if m[2] != "" {
		out += "~" + m[2]
	}
	if m[3] != "" {
		out += "+" + m[3] + ".g" + m[4]
	}
	if m[5] != "" {
		out += "+dirty"
	}
	return out
}

// zshCompletion is where the completion of zsh is looked for by packager.
var zshCompletion = map[string]string{"deb": "/usr/share/zsh/vendor-completions", "rpm": "/usr/share/zsh/site-functions"}

// packages makes the deb and the rpm.
func packages(o options, arch, work string, files []entry) error {
	stage := filepath.Join(work, "stage")
	for _, f := range files {
		if f.link != "" {
			continue // the packager makes links
		}
		if err := put(stage, o.date, packaged(f)); err != nil {
			return err
		}
	}
	unit := filepath.Join(stage, "systemd/kube-ipvs.service")
	if text, err := os.ReadFile(filepath.Clean(unit)); err != nil || bytes.Contains(text, []byte("/usr/local")) {
		return fmt.Errorf("the unit of the packages starts a program in /usr/local, or cannot be read: error %w", err)
	}
	for _, packager := range []string{"deb", "rpm"} {
		text, err := os.ReadFile("manifests/package/nfpm.yaml")
		if err != nil {
			return err
		}
		config := filepath.Join(work, packager+".yaml")
		if err := os.WriteFile(config, []byte(settings(o, arch, stage, packager).Replace(string(text))), 0o600); err != nil {
			return err
		}
		cmd := exec.Command(o.nfpm, "package", "--config", config, "--packager", packager, "--target", filepath.Join(o.out, packageName(o, arch, packager)))
		cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.date.Unix()))
		if err := run(cmd); err != nil {
			return err
		}
	}
	return nil
}

func packageName(o options, arch, packager string) string {
	return fmt.Sprintf("kube-ipvs_%s_%s.%s", packageVersion(o.version, o.date), arch, packager)
}

// settings fills in manifests/package/nfpm.yaml.
func settings(o options, arch, stage, packager string) *strings.Replacer {
	return strings.NewReplacer("$VERSION", packageVersion(o.version, o.date), "$ARCH", arch, "$MAINTAINER", o.maintainer,
		"$DATE", o.date.Format(time.RFC3339), "$STAGE", stage, "$ZSH", zshCompletion[packager])
}

// packaged returns a file of the archive as packages have it: a package never writes to
// /usr/local, and compresses manual pages.
func packaged(f entry) entry {
	switch {
	case f.name == "systemd/kube-ipvs.service":
		f.data = bytes.ReplaceAll(f.data, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	case strings.HasPrefix(f.name, "man/"):
		var out bytes.Buffer
		w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
		_, _ = w.Write(f.data)                                  // a buffer takes all
		_ = w.Close()
		f.name, f.data = f.name+".gz", out.Bytes()
	}
	return f
}

// put writes a file below a directory, with the time of the commit.
func put(dir string, date time.Time, f entry) error {
	path := filepath.Join(dir, f.name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, f.data, os.FileMode(f.mode)); err != nil { //nolint:gosec // modes of an archive
		return err
	}
	return os.Chtimes(path, date, date)
}
