package drive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// ipvsList is IPVS's list of virtual servers and destinations in the namespace of the thread that opens it.
const ipvsList = "/proc/thread-self/net/ip_vs"

// kernel counts what the candidate has written, whoever it is. It is done once: with many Services the lists are long.
func (r *run) kernel(ctx context.Context) error {
	out := &cell.Kernel{}
	err := r.world.Node.Do(func() error {
		list, err := os.Open(ipvsList)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // IPVS is not loaded
		}
		if err != nil {
			return err
		}
		defer func() { _ = list.Close() }() // it was only read
		out.Servers, out.Destinations, err = countIPVS(list)
		return err
	})
	if err != nil {
		return fmt.Errorf("count virtual servers: %w", err)
	}
	saved, err := r.world.Node.Output(ctx, "iptables-save")
	if err != nil {
		return fmt.Errorf("count rules: %w", err)
	}
	out.Rules = countRules(saved)
	r.cell.Kernel = out
	r.say("%s, %d Services: %d virtual servers with %d destinations, %d rules of iptables", r.cell.Candidate, r.n, out.Servers, out.Destinations, out.Rules)
	return nil
}

// countIPVS counts lines of /proc/net/ip_vs (ip_vs_info_seq_show of net/netfilter/ipvs/ip_vs_ctl.c): a head of three, then a line for each
// server, and one with an arrow for each of its destinations.
func countIPVS(list io.Reader) (servers, destinations int, err error) {
	lines := bufio.NewScanner(list)
	for n := 0; lines.Scan(); n++ {
		switch {
		case n < 3:
		case strings.HasPrefix(lines.Text(), "  -> "):
			destinations++
		default:
			servers++
		}
	}
	return servers, destinations, lines.Err()
}

// countRules counts the rules in what iptables-save prints.
func countRules(saved []byte) int {
	n := 0
	for line := range bytes.Lines(saved) {
		if bytes.HasPrefix(line, []byte("-A ")) {
			n++
		}
	}
	return n
}
