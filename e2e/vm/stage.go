package vm

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// makeSkeleton lays out a merged-usr tree, the layout every current distribution has.
func makeSkeleton(stage string) error {
	dirs := strings.Fields("dev etc/modprobe.d proc sys run tmp root var/lib var/log usr/bin usr/sbin usr/lib usr/lib64 usr/share mnt")
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(stage, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(stage, name)); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", filepath.Join(stage, "var/run")); err != nil {
		return err
	}
	return writeEtc(stage)
}

// fstab lets the guest's init mount everything with one program start.
const fstab = `proc /proc proc defaults 0 0
sysfs /sys sysfs defaults 0 0
devtmpfs /dev devtmpfs defaults 0 0
devpts /dev/pts devpts X-mount.mkdir,mode=620,ptmxmode=666 0 0
tmpfs /dev/shm tmpfs X-mount.mkdir,mode=1777 0 0
cgroup2 /sys/fs/cgroup cgroup2 defaults 0 0
`

// modprobeOptions keeps a node as bare as it is elsewhere: the dummy module makes a link of its own accord.
const modprobeOptions = "options dummy numdummies=0\n"

// writeEtc makes the files that mounting and name look-ups want; the host's own may hold more than a guest should see.
func writeEtc(stage string) error {
	files := map[string]string{
		"etc/passwd":                    "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"etc/group":                     "root:x:0:\nnogroup:x:65534:\n",
		"etc/hosts":                     "127.0.0.1 localhost kube-ipvs\n::1 localhost\n10.0.2.2 host\n",
		"etc/fstab":                     fstab,
		"etc/modprobe.d/kube-ipvs.conf": modprobeOptions,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(stage, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// stagePath copies a file or a directory of the host to its own place below stage. It follows every
// link on the way, so that the chain tool → alternative → real program is complete.
func stagePath(stage, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return stageDir(stage, path)
	case info.Mode()&fs.ModeSymlink != 0:
		return stageLink(stage, path)
	default:
		return copyFile(path, filepath.Join(stage, path), info.Mode().Perm())
	}
}

func stageDir(stage, path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		target := filepath.Join(path, entry.Name())
		if _, err := os.Stat(target); err != nil {
			continue // a dangling link
		}
		if err := stagePath(stage, target); err != nil {
			return err
		}
	}
	return nil
}

// stageLink copies a link and what it leads to. Links of the top directories (/bin, /lib) are part of the skeleton.
func stageLink(stage, path string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	place := filepath.Join(stage, path)
	if exists(place) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(target, place); err != nil {
		return err
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	return stagePath(stage, target)
}

func copyFile(from, to string, perm fs.FileMode) error {
	if exists(to) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
