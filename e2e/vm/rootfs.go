package vm

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
