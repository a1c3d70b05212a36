package memory_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/memory"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// Lines of /proc/self/mountinfo, each with the group that is mounted left open.
const (
	mountV2     = "35 25 0:30 ROOT /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1     = "36 25 0:31 ROOT /sys/fs/cgroup/memory rw,relatime shared:10 - cgroup cgroup rw,memory\n"
	mountCPU    = "37 25 0:32 / /sys/fs/cgroup/cpu rw,relatime shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
	mountHybrid = "38 25 0:33 / /sys/fs/cgroup/unified rw,relatime shared:12 - cgroup2 cgroup2 rw\n"
	mountBlank  = "35 25 0:30 / /sys/fs/control\\040groups rw - cgroup2 cgroup2 rw\n"
)

func mounted(line, root string) string { return strings.Replace(line, "ROOT", root, 1) }

func TestMemoryLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		own, mounts string
		files       map[string]string
		want        memory.Limit
	}{
		"no control groups": {},
		"none is mounted":   {own: "0::/a\n"},
		"version 2": {
			own: "0::/pods/one\n", mounts: mounted(mountV2, "/"),
			files: map[string]string{"sys/fs/cgroup/pods/one/memory.max": "67108864"},
			want:  memory.Limit{Bytes: 64 << 20, Group: "/sys/fs/cgroup/pods/one"},
		},
		"no limit is set": {
			own: "0::/pods/one\n", mounts: mounted(mountV2, "/"),
			files: map[string]string{"sys/fs/cgroup/pods/one/memory.max": "max", "sys/fs/cgroup/pods/memory.max": "max"},
		},
		"the smallest counts, which is one further out": {
			own: "0::/pods/one/agent\n", mounts: mounted(mountV2, "/"),
			files: map[string]string{
				"sys/fs/cgroup/pods/one/agent/memory.max": "max", "sys/fs/cgroup/pods/one/memory.max": "100000000", "sys/fs/cgroup/pods/memory.max": "200000000",
			},
			want: memory.Limit{Bytes: 100_000_000, Group: "/sys/fs/cgroup/pods/one"},
		},
		"a container in a namespace of its own": {
			own: "0::/\n", mounts: mounted(mountV2, "/"),
			files: map[string]string{"sys/fs/cgroup/memory.max": "67108864"},
			want:  memory.Limit{Bytes: 64 << 20, Group: "/sys/fs/cgroup"},
		},
		"a container that sees its group alone": {
			own: "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n", mounts: mountCPU + mounted(mountV1, "/docker/abc"),
			files: map[string]string{"sys/fs/cgroup/memory/memory.stat": "cache 1\nhierarchical_memory_limit 67108864\ntotal_cache 1"},
			want:  memory.Limit{Bytes: 64 << 20, Group: "/sys/fs/cgroup/memory"},
		},
		"another's group is mounted": {
			own: "0::/pods/one\n", mounts: mounted(mountV2, "/pods/two"),
			files: map[string]string{"sys/fs/cgroup/memory.max": "67108864"},
		},
		"version 1 beside an empty version 2": {
			own: "5:memory:/a\n0::/a\n", mounts: mounted(mountV1, "/") + mountHybrid,
			files: map[string]string{"sys/fs/cgroup/memory/a/memory.stat": "hierarchical_memory_limit 50000000"},
			want:  memory.Limit{Bytes: 50_000_000, Group: "/sys/fs/cgroup/memory/a"},
		},
		"version 1 without a limit": {
			own: "5:memory:/\n", mounts: mounted(mountV1, "/"),
			files: map[string]string{"sys/fs/cgroup/memory/memory.stat": "hierarchical_memory_limit 9223372036854771712"},
		},
		"a blank in the name": {
			own: "0::/\n", mounts: mountBlank,
			files: map[string]string{"sys/fs/control groups/memory.max": "1000000"},
			want:  memory.Limit{Bytes: 1_000_000, Group: "/sys/fs/control groups"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodefs.New(t)
			if tc.own != "" {
				nodefs.WriteFile(t, n.Path("proc/self/cgroup"), tc.own, 0o644)
			}
			if tc.mounts != "" {
				nodefs.WriteFile(t, n.Path("proc/self/mountinfo"), tc.mounts, 0o644)
			}
			for name, content := range tc.files {
				n.File(t, name, content)
			}
			got, err := memory.LimitOf(n.Files())
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v; limit (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A limit that cannot be read is not "no limit".
func TestMemoryLimitThatCannotBeRead(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, nodefs.Node){
		"not a number": func(t *testing.T, n nodefs.Node) { n.File(t, "sys/fs/cgroup/a/memory.max", "much") },
		"no file": func(t *testing.T, n nodefs.Node) {
			if err := os.MkdirAll(n.Path("sys/fs/cgroup/a/memory.max"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodefs.New(t)
			nodefs.WriteFile(t, n.Path("proc/self/cgroup"), "0::/a\n", 0o644)
			nodefs.WriteFile(t, n.Path("proc/self/mountinfo"), mounted(mountV2, "/"), 0o644)
			spoil(t, n)
			if got, err := memory.LimitOf(n.Files()); err == nil || got != (memory.Limit{}) {
				t.Errorf("MemoryLimit = %+v, %v, want an error that names the group", got, err)
			} else if !strings.Contains(err.Error(), "/sys/fs/cgroup/a") {
				t.Errorf("MemoryLimit: %v, want the group in it", err)
			}
		})
	}
}
