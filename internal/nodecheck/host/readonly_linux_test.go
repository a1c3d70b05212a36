package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// Sysctls are writable below /proc/sys, or where the node's own are mounted beside it.
func TestWritableSysctls(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	n := newNode(t)
	n.Sysctl(t, key, "0")
	n.ReadOnly(t)
	ask := func() diagnosis.Verdict {
		return verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Checks(host.CheckOptions{})), "sysctls writable")
	}
	if v := ask(); v.State != diagnosis.Warn || v.Fix == "" {
		t.Errorf("verdict %+v, want a warning with a fix", v)
	}
	n.File(t, "host/"+nodefs.SysctlFile(key), "0")
	if v := ask(); v.State != diagnosis.OK {
		t.Errorf("verdict %+v, want ok", v)
	}
}

// A run directory is asked for as it is: read-only, full, or out of files.
func TestRunDirectoryThatTakesNothing(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	for name, tt := range map[string]struct {
		flags   uintptr
		options string
		fill    bool
		want    diagnosis.State
	}{
		"space":     {0, "size=64k", false, diagnosis.OK},
		"no bound":  {0, "size=0,nr_inodes=0", false, diagnosis.OK},
		"read-only": {unix.MS_RDONLY, "size=64k", false, diagnosis.Lacks},
		"full":      {0, "size=4k", true, diagnosis.Warn},
		"no files":  {0, "size=64k,nr_inodes=1", false, diagnosis.Lacks},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			if err := os.MkdirAll(n.Run, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", n.Run, "tmpfs", tt.flags, tt.options); err != nil {
				t.Fatalf("mount: %v", err)
			}
			defer func() { _ = unix.Unmount(n.Run, unix.MNT_DETACH) }()
			if tt.fill {
				nodefs.WriteFile(t, filepath.Join(n.Run, "fill"), strings.Repeat("x", 4096), 0o600)
			}
			o := options()
			o.DiskSpace = nil
			if v := verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Hazards(o)), "run directory"); v.State != tt.want || (v.Fix == "") != (tt.want == diagnosis.OK) {
				t.Errorf("%+v, want %s and a remedy", v, tt.want)
			}
		})
	}
}
