package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

// checkWritable opens a key for writing and writes nothing, which is where a
// read-only mount and a security module say no.
func (h *Node) checkWritable(context.Context) error {
	f, err := os.OpenFile(h.files.Path("proc/sys/net/ipv4/ip_forward"), os.O_WRONLY, 0)
	if err != nil {
		// A node whose sysctls are right already needs no writing.
		return diagnosis.Warning(fmt.Errorf("sysctls cannot be set: %w", err))
	}
	return f.Close()
}

func (h *Node) checkForwarding6(context.Context) error {
	value, err := h.files.Read("proc/sys/net/ipv6/conf/all/forwarding")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return diagnosis.Lacking(errors.New("no IPv6 in this kernel"))
	case err != nil:
		return err
	case value == "0":
		return diagnosis.Warning(errors.New("net.ipv6.conf.all.forwarding=0: IPv6 packets to pods of other nodes are dropped"))
	}
	return nil
}

// askSysctls lists the keys that the agent is going to change, and those that it cannot.
func (h *Node) askSysctls(o HazardOptions) error {
	var later, set, never, fix []string
	mark := diagnosis.Warning
	for _, s := range o.Sysctls {
		name, err := procfs.SysctlPath(s.Key)
		if err != nil {
			return err
		}
		have, err := h.files.Read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // its module is not loaded, which others tell
			continue
		case err != nil:
			return fmt.Errorf("read sysctl %s: %w", s.Key, err)
		case have == s.Value:
			continue
		}
		text := fmt.Sprintf("%s=%s must be %s (%s)", s.Key, have, s.Value, s.Why)
		if h.writable(name) {
			later, set = append(later, text), append(set, s.String())
			continue
		}
		never, fix = append(never, text), append(fix, s.String())
		if s.Policy == sysctl.Required {
			mark = diagnosis.Lacking
		}
	}
	switch {
	case len(never) > 0:
		return diagnosis.Remedied(mark(fmt.Errorf("cannot be set from here: %s", strings.Join(never, ", "))),
			sysctl.OnHost(fix))
	case len(later) > 0 && o.Running:
		return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("changed by another program, the agent repairs them at its next audit: %s", strings.Join(later, ", "))), "sysctl -w "+strings.Join(set, " "))
	case len(later) > 0:
		return diagnosis.Note("the agent sets them when it starts: %s", strings.Join(later, ", "))
	}
	return nil
}

// writable opens a key for writing and writes nothing.
func (h *Node) writable(name string) bool {
	f, err := os.OpenFile(h.files.Path(name), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	return f.Close() == nil
}
