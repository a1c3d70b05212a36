package vm

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// rootfsFormat changes when this file changes what it puts into an image, so that older images are not used any more.
const rootfsFormat = 2

// rootfs is what the image is made from, found before anything is built so that the cache key costs only stat calls.
type rootfs struct {
	kernel  Kernel
	tools   []string // programs
	plugins []string // libraries opened by name
	support []string // files and directories as they are
}

// findRootfs collects the parts from the host.
func findRootfs(kernel Kernel) (rootfs, error) {
	tools, err := findTools(requiredTools, optionalTools, lookTool)
	if err != nil {
		return rootfs{}, err
	}
	parts := rootfs{kernel: kernel, tools: tools}
	for _, pattern := range pluginGlobs {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return rootfs{}, err
		}
		parts.plugins = append(parts.plugins, found...)
	}
	parts.support = slices.DeleteFunc(slices.Clone(supportFiles), func(path string) bool { return !exists(path) })
	return parts, nil
}

// key names the image: it changes with the kernel, with any tool, plug-in or library list of the host, and with the format.
func (r rootfs) key() string {
	hash := sha256.New()
	fmt.Fprintln(hash, "format", rootfsFormat, r.kernel.Release)
	for _, path := range slices.Concat([]string{r.kernel.Image, r.kernel.Modules + "/modules.dep"}, r.tools, r.plugins, r.support) {
		info, err := os.Stat(path)
		if err == nil {
			fmt.Fprintln(hash, path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// image returns the path of the archive, building it when the cache has none.
func (r rootfs) image(ctx context.Context, cache string, log *progress) (string, error) {
	path := filepath.Join(cache, "rootfs-"+r.key()+".cpio")
	now := time.Now()
	if os.Chtimes(path, now, now) == nil {
		return path, nil
	}
	err := publish(path, func(tmp string) error { return r.build(ctx, tmp) })
	if err != nil {
		return "", fmt.Errorf("build the root file system: %w", err)
	}
	log.printf("rootfs: %s built in %.1fs", fileSize(path), time.Since(now).Seconds())
	return path, prune(cache, "rootfs-*.cpio")
}

// build stages everything in a directory next to the image, because depmod wants to see the modules where they will be.
func (r rootfs) build(ctx context.Context, image string) error {
	stage := image + ".d"
	if err := r.stage(ctx, stage); err != nil {
		return err
	}
	file, err := os.Create(image)
	if err != nil {
		return err
	}
	defer file.Close()
	buffer := bufio.NewWriterSize(file, 1<<20)
	if err := writeBase(buffer, stage); err != nil {
		return err
	}
	return buffer.Flush()
}

// writeBase writes the staged tree with the two device nodes the kernel wants before devtmpfs is mounted; making real nodes
// would take root.
func writeBase(w io.Writer, stage string) error {
	base := newArchive(w)
	if err := base.tree(stage); err != nil {
		return err
	}
	base.char("dev/console", 5, 1)
	base.char("dev/null", 1, 3)
	return base.close()
}

func (r rootfs) stage(ctx context.Context, stage string) error {
	if err := makeSkeleton(stage); err != nil {
		return err
	}
	libs, err := libraries(ctx, slices.Concat(r.tools, r.plugins), runLdd)
	if err != nil {
		return err
	}
	for _, path := range slices.Concat(r.tools, r.plugins, libs, r.support) {
		if err := stagePath(stage, path); err != nil {
			return err
		}
	}
	return r.stageModules(ctx, stage)
}

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

// stagePath copies a file or a directory of the host to its own place below stage, following every link on the way so that the
// chain tool → alternative → real program arrives whole.
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

func (r rootfs) stageModules(ctx context.Context, stage string) error {
	index, err := indexModules(r.kernel.Modules)
	if err != nil {
		return err
	}
	files := append(index.wanted(), "modules.builtin", "modules.order")
	if exists(filepath.Join(r.kernel.Modules, "modules.builtin.modinfo")) {
		files = append(files, "modules.builtin.modinfo")
	}
	dir := filepath.Join(stage, "usr/lib/modules", r.kernel.Release)
	for _, file := range files {
		if err := copyFile(filepath.Join(r.kernel.Modules, file), filepath.Join(dir, file), 0o644); err != nil {
			return err
		}
	}
	_, err = output(ctx, stage, "depmod", "-b", stage, r.kernel.Release)
	return err
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
