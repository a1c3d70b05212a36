package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// plugins is where Debian's package containernetworking-plugins has them.
const plugins = "/usr/lib/cni"

// Memory in MiB that a cluster takes: a node with its pods and its files, and the control plane.
const (
	nodeUse  = 1200
	planeUse = 1000
)

// able returns what this machine lacks, nil when it can run a cluster.
func able(o options) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("nodes are guests of User-mode Linux, which runs on linux/amd64 and not on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	var lacks []string
	for _, tool := range []string{"ip", "crun", "taskset", "iptables", "conntrack"} {
		if _, err := exec.LookPath(tool); err != nil {
			lacks = append(lacks, tool)
		}
	}
	for _, plugin := range []string{"ptp", "host-local", "loopback"} {
		if _, err := os.Stat(plugins + "/" + plugin); err != nil {
			lacks = append(lacks, plugins+"/"+plugin)
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("it lacks %s; e2e/install.sh tools vm uml cluster brings them", strings.Join(lacks, ", "))
	}
	if _, err := os.Stat(o.image); err != nil {
		return fmt.Errorf("no image: %w; make image builds it", err)
	}
	return room(o.nodes*nodeUse + planeUse)
}

// room compares what a cluster takes with the memory that is free, and with /dev/shm, where the memory of guests is.
func room(need int) error {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var kib int
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kib); n == 1 && kib>>10 < need {
			return fmt.Errorf("the cluster takes up to %d MiB of memory, and %d are available; -nodes 1 takes less", need, kib>>10)
		}
	}
	var shm unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &shm); err != nil {
		return fmt.Errorf("look at /dev/shm: %w", err)
	}
	if free := int(shm.Bavail * uint64(shm.Bsize) >> 20); free < need { //nolint:gosec // sizes of a file system
		return fmt.Errorf("guests keep up to %d MiB in /dev/shm, where %d are free", need, free)
	}
	return nil
}
