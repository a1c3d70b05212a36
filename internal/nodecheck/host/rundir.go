package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
)

// DiskSpace is the free space of a file system: bytes, and inodes. A number without a bound is
// math.MaxUint64.
type DiskSpace struct {
	Bytes, Files uint64
}

// askRunDir asks the nearest directory that is there, and makes none. Lock and socket are
// files that the agent makes at its start; the journal is one that has content.
func (h *Node) askRunDir(o HazardOptions) error {
	dir, err := nearest(h.runDir)
	if err != nil {
		return diagnosis.Remedied(diagnosis.Lacking(fmt.Errorf("%s is not writable: %w; the agent would not start", dir, err)),
			fmt.Sprintf("run as root, mount the host's %s writable, or choose another with --run-dir", h.runDir))
	}
	fix := fmt.Sprintf("free space on the file system of %s, or choose another directory with --run-dir", dir)
	switch space, err := o.DiskSpace(dir); {
	case err != nil:
		return fmt.Errorf("read the free space of %s: %w", dir, err)
	case space.Files == 0:
		return diagnosis.Remedied(diagnosis.Lacking(fmt.Errorf("%s has no free inodes; the agent would not start", dir)), fix)
	case space.Bytes == 0:
		return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%s is full: the agent cannot save the sysctls that it changes, so cleanup would not restore them", dir)), fix)
	}
	return nil
}

// nearest is the directory itself or the first above it that is there, and why it cannot be
// written to.
func nearest(dir string) (string, error) {
	for {
		err := unix.Access(dir, unix.W_OK)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

// diskSpaceOf counts the blocks that are reserved for root, too: the agent is root. Some file systems make
// files as long as they have bytes, and say 0 of 0.
func diskSpaceOf(dir string) (DiskSpace, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return DiskSpace{}, err
	}
	space := DiskSpace{Bytes: math.MaxUint64, Files: math.MaxUint64}
	if s.Blocks > 0 {
		space.Bytes = s.Bfree * uint64(s.Bsize)
	}
	if s.Files > 0 {
		space.Files = s.Ffree
	}
	return space, nil
}
