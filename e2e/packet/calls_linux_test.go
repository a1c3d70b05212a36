package packet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// calls are the system calls of a process that matter here, each as strace printed it.
type calls struct {
	programs []string // programs launched, processes forked
	netlink  []string // everything said and heard on netlink
	sent     []string // messages to the kernel
	dumps    []string // of these, requests for everything
	writes   []string // of these, requests to change something
}

// straceArgs is a command line that records a process with its children. Messages are printed as bytes.
func straceArgs(record string) []string {
	return []string{
		"strace", "-f", "-qq", "-x", "-s", "256", "-o", record, "-e", "signal=none",
		"-e", "trace=execve,clone,clone3,fork,vfork,sendmsg,sendto,sendmmsg,recvmsg,recvfrom",
	}
}

// watched is an strace at work.
type watched struct {
	cmd    *exec.Cmd
	record string
}

// watchCalls attaches to all threads of a running process.
func watchCalls(t *testing.T, pid int) watched {
	t.Helper()
	w := watched{record: filepath.Join(t.TempDir(), "strace")}
	args := append(straceArgs(w.record), "-p", fmt.Sprint(pid))
	w.cmd = exec.Command(args[0], args[1:]...)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	poll(t, "strace to attach", settleTimeout, func() error { return traced(pid) })
	return w
}

// traced fails while a thread of the process is not watched.
func traced(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return err
	}
	for _, file := range threads {
		status, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
			return fmt.Errorf("%s is not traced", file)
		}
	}
	return nil
}

// end detaches and returns what was seen.
func (w watched) end(t *testing.T) calls {
	t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = w.cmd.Wait() // it reports the signal it was ended by
	return readCalls(t, w.record)
}

var (
	startsProcess = regexp.MustCompile(`\b(execve|fork|vfork|clone|clone3)\(`)
	message       = regexp.MustCompile(`\b(sendmsg|sendto|sendmmsg|recvmsg|recvfrom)\(.*(nlmsg_|AF_NETLINK)`)
	// changing matches the requests that write, by the names that strace prints: rtnetlink, ipset
	// and nftables by name. IPVS, a generic netlink protocol that strace does not know, is matched
	// by the number of the command. Where strace cannot look up the family's name it prints its
	// number.
	changing = regexp.MustCompile(`nlmsg_type=(RTM_(NEW|DEL|SET)|NFNL_SUBSYS_IPSET<<8\|IPSET_CMD_(CREATE|DESTROY|FLUSH|RENAME|SWAP|ADD|DEL)\b` +
		`|NFNL_SUBSYS_NFTABLES<<8\|NFT_MSG_(NEW|DEL))`)
	changingIPVS = regexp.MustCompile(`nlmsg_type=(IPVS|0x\w+ [^,]*), .*\}, "\\x(01|02|03|05|06|07|09|0a|0c|0e|10|11)\\x01\\x00\\x00`)
	// guarding matches the query for changed rules, which the agent sends twice a second at all
	// times.
	guarding = regexp.MustCompile(`nlmsg_type=(0xa10 |NFNL_SUBSYS_NFTABLES<<8\|NFT_MSG_GETGEN)`)
	dumping  = regexp.MustCompile(`NLM_F_DUMP|NLM_F_REQUEST[^,]*\|0x300`)
)

// readCalls sorts the lines of a record.
func readCalls(t *testing.T, record string) calls {
	t.Helper()
	content, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var c calls
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		switch {
		case startsProcess.MatchString(line) && !strings.Contains(line, "CLONE_THREAD"):
			c.programs = append(c.programs, line)
		case message.MatchString(line):
			c.sort(line)
		}
	}
	return c
}

func (c *calls) sort(line string) {
	c.netlink = append(c.netlink, line)
	if strings.Contains(line, "recv") {
		return
	}
	if guarding.MatchString(line) {
		return
	}
	c.sent = append(c.sent, line)
	if dumping.MatchString(line) {
		c.dumps = append(c.dumps, line)
	}
	if changing.MatchString(line) || changingIPVS.MatchString(line) {
		c.writes = append(c.writes, line)
	}
}
