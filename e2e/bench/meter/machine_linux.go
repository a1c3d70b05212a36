package meter

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

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// machine is what /proc/stat says since the machine was booted, of all CPUs.
type machine struct {
	busy, softIRQ time.Duration
	processes     int64 // threads, too
}

// tick is the unit of /proc/stat: USER_HZ is 100 on all machines that Linux runs on here.
const tick = 10 * time.Millisecond

func readMachine() (machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}, err
	}
	return parseMachine(text)
}

// parseMachine adds the fields of proc_stat(5) but idle and iowait; the time of guests is in that of users already.
func parseMachine(text []byte) (m machine, err error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return m, fmt.Errorf("read /proc/stat: its first line is %q", line)
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return m, fmt.Errorf("read /proc/stat: %w", err)
		}
		const idle, iowait, softirq = 3, 4, 6
		if i != idle && i != iowait {
			m.busy += time.Duration(n) * tick
		}
		if i == softirq {
			m.softIRQ = time.Duration(n) * tick
		}
	}
	m.processes, err = number(text, "processes")
	return m, err
}

// Describe says what machine this is.
func Describe() cell.Machine {
	m := cell.Machine{Where: os.Getenv("KUBE_IPVS_WHERE"), CPUs: runtime.NumCPU(), IPTables: version("iptables"), NFTables: version("nft")}
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

// version is what a tool says of itself, nothing where there is no such tool.
func version(tool string) string {
	out, err := exec.Command(tool, "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// How often each is tried, and for how long the loop runs.
const (
	spinRounds, spinLength = 5, 100 * time.Millisecond
	launchRounds           = 11
)

// Calibrate measures how fast the machine is now: a loop, and a process.
func Calibrate() (*cell.Calibration, error) {
	spins := make([]float64, spinRounds)
	for i := range spins {
		spins[i] = spin(spinLength)
	}
	took := make([]float64, launchRounds)
	for i := range took {
		start := time.Now()
		if err := exec.Command("true").Run(); err != nil {
			return nil, fmt.Errorf("calibrate: %w", err)
		}
		took[i] = time.Since(start).Seconds()
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, err
	}
	load, err := strconv.ParseFloat(strings.Fields(string(text) + " ?")[0], 64)
	return &cell.Calibration{Spins: stats.Median(spins), Launch: cell.Seconds(stats.Median(took)), Load: load}, err
}

// spin is how many rounds of some work are done in a millisecond.
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

// Settle waits until the machine does next to nothing, as it does not while it clears away a namespace full of rules, and returns how busy it
// was at last: 1 is all CPUs. It gives up after the limit.
func Settle(limit time.Duration) (float64, error) {
	const length, calm = time.Second, 0.1
	deadline := time.Now().Add(limit)
	for {
		before, err := readMachine()
		if err != nil {
			return 0, err
		}
		time.Sleep(length)
		after, err := readMachine()
		if err != nil {
			return 0, err
		}
		busy := (after.busy - before.busy).Seconds() / length.Seconds() / float64(runtime.NumCPU())
		if busy < calm || time.Now().After(deadline) {
			return busy, nil
		}
	}
}
