package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// Limit bounds the memory of this process and of all others in its control group: a process that
// needs more is killed. The zero value is no limit.
type Limit struct {
	Bytes uint64
	Group string // the directory of the control group that has it
}

// LimitOf returns the smallest limit of this process's control group and of those
// around it, as far as they are mounted, of either version
// (Documentation/admin-guide/cgroup-v2.rst: memory.max; cgroup-v1/memory.rst:
// hierarchical_memory_limit). A kernel without control groups, and groups that say "max",
// have none; an error tells that a limit may be there which cannot be read.
func LimitOf(files procfs.Files) (Limit, error) {
	places, err := memoryGroups(files)
	if err != nil {
		return Limit{}, fmt.Errorf("find the control group of this process: %w", err)
	}
	var least Limit
	for _, p := range places {
		for _, group := range p.groups() {
			limit, err := limitOf(files, p, group)
			if err != nil {
				return Limit{}, fmt.Errorf("read the memory limit of %s: %w", group, err)
			}
			if limit != 0 && (least.Bytes == 0 || limit < least.Bytes) {
				least = Limit{limit, group}
			}
		}
	}
	return least, nil
}

// groupPlace is where a tree of control groups is mounted, and this process in it.
type groupPlace struct {
	mount string
	own   string // relative to the mount
	v1    bool
}

// groups are the directories to ask, the innermost first. In version 1 one speaks for those
// around it, too: whether their limits hold depends on how they were set up.
func (p groupPlace) groups() []string {
	own := filepath.Join(p.mount, p.own)
	if p.v1 {
		return []string{own}
	}
	var out []string
	for dir := own; dir != p.mount; dir = filepath.Dir(dir) {
		out = append(out, dir)
	}
	return append(out, p.mount)
}

// memoryGroups finds this process in each tree that bounds memory (cgroups(7):
// /proc/[pid]/cgroup; proc_pid_mountinfo(5)).
func memoryGroups(files procfs.Files) ([]groupPlace, error) {
	own, err := ownGroups(files)
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(files.Path("proc/self/mountinfo"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []groupPlace
	for line := range strings.Lines(string(mounts)) {
		front, back, _ := strings.Cut(line, " - ")
		at, what := strings.Fields(front), strings.Fields(back)
		if len(at) < 5 || len(what) < 3 {
			continue
		}
		v1 := what[0] == "cgroup" && slices.Contains(strings.Split(what[2], ","), "memory")
		if !v1 && what[0] != "cgroup2" {
			continue
		}
		path, there := own[v1]
		if rel, err := filepath.Rel(unescapeMount.Replace(at[3]), path); there && err == nil && filepath.IsLocal(rel) {
			out = append(out, groupPlace{mount: unescapeMount.Replace(at[4]), own: rel, v1: v1})
		}
	}
	return out, nil
}

// unescapeMount takes back how the kernel writes blanks in the names of mounts.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// ownGroups are this process's control groups, by whether they are of version 1: that of the
// memory controller there, the only one in version 2.
func ownGroups(files procfs.Files) (map[bool]string, error) {
	text, err := os.ReadFile(files.Path("proc/self/cgroup"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[bool]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0" && parts[1] == "":
			out[false] = parts[2]
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			out[true] = parts[2]
		}
	}
	return out, nil
}

// noLimit is from where on a limit of version 1 is none: it is written as the largest
// number of whole pages.
const noLimit = 1 << 62

// limitOf returns the limit of one group, 0 if it has none: the outermost group has no
// file, nor has a group whose memory is not counted.
func limitOf(files procfs.Files, p groupPlace, group string) (uint64, error) {
	name := "memory.max"
	if p.v1 {
		name = "memory.stat"
	}
	text, err := os.ReadFile(files.Path(group, name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	value := strings.TrimSpace(string(text))
	if p.v1 {
		value = statOf(string(text), "hierarchical_memory_limit")
	}
	if value == "max" || value == "" {
		return 0, nil
	}
	limit, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, err
	}
	if limit >= noLimit {
		limit = 0
	}
	return limit, nil
}

// statOf is the value of a line "name value", empty if there is none.
func statOf(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
