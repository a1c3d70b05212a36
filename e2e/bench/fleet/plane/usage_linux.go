package plane

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what the process of the API server has used.
type Usage struct {
	CPU time.Duration // user and system, of all its threads
	RSS int64         // bytes
}

// hertz is what times in /proc/PID/stat count (USER_HZ, which is 100 on all that Go runs on).
const hertz = 100

// Usage asks the kernel.
func (p *Plane) Usage() (Usage, error) {
	pid := p.APIServerPID()
	if pid == 0 {
		return Usage{}, errors.New("the API server does not run")
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("what the API server used: %w", err)
	}
	return parseUsage(string(text), int64(os.Getpagesize()))
}

// parseUsage reads fields of /proc/PID/stat (proc_pid_stat(5)): utime and stime are the 14th and 15th, rss the 24th. The second is the
// name in parentheses, which may hold anything.
func parseUsage(text string, page int64) (u Usage, err error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const third, utime, stime, rss = 3, 14, 15, 24
	if len(fields) <= rss-third {
		return u, fmt.Errorf("read /proc/PID/stat: %d fields", len(fields))
	}
	var values [3]int64
	for i, n := range []int{utime, stime, rss} {
		if values[i], err = strconv.ParseInt(fields[n-third], 10, 64); err != nil {
			return u, fmt.Errorf("read /proc/PID/stat: %w", err)
		}
	}
	return Usage{CPU: time.Duration(values[0]+values[1]) * time.Second / hertz, RSS: values[2] * page}, nil
}
