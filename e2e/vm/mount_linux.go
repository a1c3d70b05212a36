package vm

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bind is a file or directory of the host seen at another place.
type bind struct {
	Host, Guest string
	ReadOnly    bool
}

// mountPrivate shows the new namespaces in /proc and /sys and hides the host's /run, where lock files and named network
// namespaces live.
func mountPrivate() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct{ kind, place string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.kind, m.place, m.kind, unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.place, err)
		}
	}
	return nil
}

func openAll(binds []bind) ([]*os.File, error) {
	var files []*os.File
	for _, b := range binds {
		file, err := os.Open(b.Host)
		if err != nil {
			return nil, fmt.Errorf("share %s: %w", b.Host, err)
		}
		files = append(files, file)
	}
	return files, nil
}

// mount shows an open file or directory of the host at the bind's place and closes it.
func (b bind) mount(source *os.File) error {
	defer source.Close()
	if err := b.makePlace(source); err != nil {
		return err
	}
	from := fmt.Sprintf("/proc/self/fd/%d", source.Fd())
	if err := unix.Mount(from, b.Guest, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("share %s: %w", b.Host, err)
	}
	if !b.ReadOnly {
		return nil
	}
	// A bind mount takes flags only when it is mounted a second time.
	if err := unix.Mount("", b.Guest, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("share %s read-only: %w", b.Host, err)
	}
	return nil
}

// makePlace makes the directory or the empty file that the bind is mounted on.
func (b bind) makePlace(source *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(b.Guest, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(b.Guest), 0o755); err != nil {
		return err
	}
	return os.WriteFile(b.Guest, nil, 0o755)
}
