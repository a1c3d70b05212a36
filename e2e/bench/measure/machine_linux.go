package measure

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of /proc/stat: USER_HZ is 100 on all machines that Linux runs on here.
const tick = 10 * time.Millisecond

// busyTime is how long all CPUs were busy since the machine was booted.
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(text)
}

// parseBusy adds the fields of proc_stat(5) except idle and iowait; user time includes guest time.
func parseBusy(text []byte) (busy time.Duration, err error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("read /proc/stat: its first line is %q", line)
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		const idle, iowait = 3, 4
		if i != idle && i != iowait {
			busy += time.Duration(n) * tick
		}
	}
	return busy, nil
}

// Describe describes this machine.
func Describe() Machine {
	m := Machine{Where: os.Getenv("KUBE_IPVS_WHERE"), CPUs: runtime.NumCPU(), IPTables: version("iptables"), NFTables: version("nft")}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if kib, err := number(text, "MemTotal"); err == nil {
			m.Memory = int(kib >> 10)
		}
	}
	return m
}

// version is what a tool prints for --version; empty without the tool.
func version(tool string) string {
	out, err := exec.Command(tool, "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Speed is measured by a loop that runs spinRounds times for spinLength.
const (
	spinRounds = 5
	spinLength = 100 * time.Millisecond
)

// Speed is how fast the machine is now: rounds of a fixed loop in a millisecond, the median of several measurements.
func Speed() float64 {
	spins := make([]float64, spinRounds)
	for i := range spins {
		spins[i] = spin(spinLength)
	}
	return Median(spins)
}

// spin is the number of rounds of a fixed loop in a millisecond.
func spin(length time.Duration) float64 {
	work := make([]byte, 1<<10)
	start, rounds := time.Now(), 0
	for time.Since(start) < length {
		for i := range work {
			work[i] ^= byte(i + rounds)
		}
		slices.Reverse(work)
		rounds++
	}
	return float64(rounds) / float64(time.Since(start).Milliseconds())
}

// Settle waits until the machine is nearly idle, at most for limit, and returns the share of all CPUs that was busy last. The kernel may
// still be busy with the removal of a namespace that is full of rules.
func Settle(limit time.Duration) (float64, error) {
	const length, calm = time.Second, 0.1
	deadline := time.Now().Add(limit)
	for {
		before, err := busyTime()
		if err != nil {
			return 0, err
		}
		time.Sleep(length)
		after, err := busyTime()
		if err != nil {
			return 0, err
		}
		busy := (after - before).Seconds() / length.Seconds() / float64(runtime.NumCPU())
		if busy < calm || time.Now().After(deadline) {
			return busy, nil
		}
	}
}
