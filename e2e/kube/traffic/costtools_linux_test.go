package traffic

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// counter is a directory of scripts that are named like the tools of iptables and stand before them on an agent's PATH. Each writes down
// that it was launched and keeps what it was told, then becomes the tool. Other programs that a proxy may launch are counted with them.
type counter struct {
	dir  string
	read int // lines of launches that were counted before
}

// tally is what was launched: processes, and bytes that iptables-restore was told, of both families.
type tally struct {
	Processes int            `json:"processes"`
	Bytes     int64          `json:"bytes"`
	Tools     map[string]int `json:"tools"`
}

// Tools that are counted. The plain names are those of a backend, which differs between runs.
var (
	ruleTools  = []string{"iptables", "ip6tables"}
	otherTools = []string{"nft", "ipset", "ipvsadm", "conntrack", "modprobe"}
)

// newCounter makes the scripts.
func newCounter(t *testing.T, backend string) *counter {
	t.Helper()
	c := &counter{dir: t.TempDir()}
	must(t, os.Mkdir(filepath.Join(c.dir, "input"), 0o755))
	must(t, os.WriteFile(c.launches(), nil, 0o644))
	for _, family := range ruleTools {
		for _, kind := range []string{"", "-nft", "-legacy"} {
			tool := kind
			if tool == "" {
				tool = "-" + backend
			}
			c.wrap(t, family+kind, family+tool, passOn)
			c.wrap(t, family+kind+"-save", family+tool+"-save", passOn)
			c.wrap(t, family+kind+"-restore", family+tool+"-restore", keepInput)
		}
	}
	for _, name := range otherTools {
		if _, err := exec.LookPath(name); err == nil {
			c.wrap(t, name, name, passOn)
		}
	}
	return c
}

// Scripts in place of tools: one kind counts the input of the tool, the other does not. The number
// of a process stays that of the tool; a file of the same number would be an error.
const (
	passOn = `#!/bin/sh
echo "$$ NAME" >>DIR/launches
exec PROGRAM "$@"
`
	keepInput = `#!/bin/sh
set -Ce
cat >DIR/input/$$
echo "$$ NAME" >>DIR/launches
exec PROGRAM "$@" <DIR/input/$$
`
)

func (c *counter) wrap(t *testing.T, name, program, script string) {
	t.Helper()
	path, err := exec.LookPath(program)
	must(t, err)
	text := strings.NewReplacer("NAME", name, "PROGRAM", path, "DIR", c.dir).Replace(script)
	must(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o755))
}

func (c *counter) launches() string { return filepath.Join(c.dir, "launches") }

// path is the PATH of an agent.
func (c *counter) path() string { return "PATH=" + c.dir + ":" + os.Getenv("PATH") }

// take counts what was launched since it was last called.
func (c *counter) take(t *testing.T) tally {
	t.Helper()
	lines := c.lines(t)
	sum := tally{Tools: map[string]int{}}
	for _, line := range lines[c.read:] {
		number, name, _ := strings.Cut(line, " ")
		sum.Processes++
		sum.Tools[name]++
		input := filepath.Join(c.dir, "input", number)
		if info, err := os.Stat(input); err == nil {
			sum.Bytes += info.Size()
			must(t, os.Remove(input))
		} else if strings.HasSuffix(name, "-restore") {
			t.Errorf("what %s was told is not known: %v", name, err)
		}
	}
	c.read = len(lines)
	return sum
}

func (c *counter) lines(t *testing.T) []string {
	t.Helper()
	file, err := os.Open(c.launches())
	must(t, err)
	defer file.Close()
	var out []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		out = append(out, lines.Text())
	}
	return out
}

// quiet is how long nothing is launched and nothing launched goes on when a phase is over.
const quiet = 3 * time.Second

// settle waits until the tools are quiet.
func (c *counter) settle(t *testing.T) {
	t.Helper()
	seen, since := -1, time.Now()
	poll(t, "tools to be quiet", bulkTimeout, func() error {
		lines := c.lines(t)
		if len(lines) != seen || running(lines) {
			seen, since = len(lines), time.Now()
		}
		if idle := time.Since(since); idle < quiet {
			return fmt.Errorf("%d were launched, idle for %s", len(lines), idle)
		}
		return nil
	})
}

// running reports whether one of the last tools still runs. An agent that does not wait for what it
// launched leaves it as a zombie.
func running(lines []string) bool {
	for _, line := range lines[max(0, len(lines)-20):] {
		number, _, _ := strings.Cut(line, " ")
		stat, err := os.ReadFile("/proc/" + number + "/stat")
		if err != nil {
			continue
		}
		if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "Z") {
			return true
		}
	}
	return false
}
