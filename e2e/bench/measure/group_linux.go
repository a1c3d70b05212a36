package measure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is a control group that a program is born into, with all that it will launch.
type group struct {
	path string
	dir  *os.File
}

// newGroup makes a group. If the second version of control groups is not mounted, it mounts it.
func newGroup() (*group, error) {
	root, err := groupRoot()
	if err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(root, "kube-ipvs-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &group{path: path, dir: dir}, nil
}

// ownMount is where control groups are mounted by this program.
const ownMount = "/run/kube-ipvs-bench-cgroup"

func groupRoot() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			return fields[1], nil
		}
	}
	if err := os.MkdirAll(ownMount, 0o755); err != nil {
		return "", err
	}
	if err := unix.Mount("none", ownMount, "cgroup2", 0, ""); err != nil {
		return "", fmt.Errorf("mount control groups: %w", err)
	}
	return ownMount, nil
}

// adopt makes a command start inside of the group.
func (g *group) adopt(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.dir.Fd())
}

// cpu is what all that was ever in the group has used (cpu.stat of Documentation/admin-guide/cgroup-v2.rst). The sum is exact; how it is
// divided between user and system follows ticks.
func (g *group) cpu() (user, system time.Duration, err error) {
	text, err := os.ReadFile(filepath.Join(g.path, "cpu.stat"))
	if err != nil {
		return 0, 0, err
	}
	for _, field := range []struct {
		name string
		to   *time.Duration
	}{{"user_usec", &user}, {"system_usec", &system}} {
		n, err := number(text, field.name)
		if err != nil {
			return 0, 0, fmt.Errorf("read cpu.stat: %w", err)
		}
		*field.to = time.Duration(n) * time.Microsecond
	}
	return user, system, nil
}

// number is the value of a line "name value" or "name: value unit".
func number(text []byte, name string) (int64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 && strings.TrimSuffix(fields[0], ":") == name {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("there is no %s", name)
}

// pids are the processes in the group now.
func (g *group) pids() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(g.path, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("read cgroup.procs: %w", err)
		}
		out = append(out, pid)
	}
	return out, nil
}

// kill ends all that is in the group.
func (g *group) kill() error {
	err := os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
	if !errors.Is(err, os.ErrNotExist) { // a kernel before 5.14
		return err
	}
	pids, err := g.pids()
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	return err
}

// emptied is how long a killed group may take to be empty.
const emptied = 30 * time.Second

// close removes the group when all in it have ended.
func (g *group) close() error {
	defer g.dir.Close()
	for deadline := time.Now().Add(emptied); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(g.path)
		if err == nil || time.Now().After(deadline) || !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
}
