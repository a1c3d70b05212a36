package packet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

// Parameters of the UDP test for the node's table of connections and for the agent.

// fill puts the flows of others into the table.
func (c *conversation) fill(t *testing.T) {
	t.Helper()
	for file, least := range map[string]int{
		"/proc/sys/net/netfilter/nf_conntrack_max": foreignFlows * 5 / 4, "/sys/module/nf_conntrack/parameters/hashsize": foreignFlows / 4,
	} {
		text, err := os.ReadFile(file)
		c.must(t, err)
		if have, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || have < least {
			if err := os.WriteFile(file, []byte(strconv.Itoa(least)), 0); err != nil {
				t.Skipf("%s is %d, this test needs %d: %v", file, have, least, err)
			}
		}
	}
	start := time.Now()
	c.must(t, c.table.AddAll(conntracktest.Foreign(4, foreignFlows)))
	t.Logf("figure: %d flows of others made in %s", foreignFlows, time.Since(start).Round(time.Second))
}

// measure times one look of the kernel through its table. It takes 0.2 s for a million flows where nothing is emulated,
// and handles no packets on that processor meanwhile.
func (c *conversation) measure(t *testing.T) {
	t.Helper()
	for range 3 {
		start := time.Now()
		_, err := c.table.AnsweredBy(netip.MustParseAddr(c.w.remote1.addr.v4))
		c.must(t, err)
		c.look = max(c.look, time.Since(start))
	}
	t.Logf("figure: the kernel looks through its table in %s", c.look.Round(time.Millisecond))
}

// forgotten waits until no flow is answered by an address that is no backend any more.
func (c *conversation) forgotten(t *testing.T, old *pod) {
	t.Helper()
	for _, family := range families {
		poll(t, "flows to "+old.name+" to go", settleTimeout, func() error {
			flows, err := c.table.AnsweredBy(netip.MustParseAddr(old.addr.of(family)))
			if err == nil && len(flows) > 0 {
				err = fmt.Errorf("%v", flows)
			}
			return err
		})
	}
}

// untouched requires every flow of others to be there, and the agent to be as small as before.
func (c *conversation) untouched(t *testing.T) {
	t.Helper()
	others := netip.MustParsePrefix("198.18.0.0/15")
	seen := 0
	c.must(t, c.table.Each(func(f conntracktest.Flow) {
		if others.Contains(f.Dialled.Addr()) {
			seen++
		}
	}))
	if seen != foreignFlows {
		t.Errorf("%d flows of others are left of %d", seen, foreignFlows)
	}
	peak := c.memory(t, "VmHWM")
	t.Logf("figure: the agent has %d MiB, at most %d MiB; %d MiB before", c.memory(t, "VmRSS")>>10, peak>>10, c.resident>>10)
	if peak-c.resident > 64<<10 {
		t.Errorf("the agent grew from %d to %d KiB", c.resident, peak)
	}
	if failed := c.metric(t, "kube_ipvs_conntrack_sweeps_failed_total"); failed > 0 {
		t.Errorf("%.0f sweeps failed", failed)
	}
	for line := range strings.Lines(c.output.String()) {
		if strings.Contains(line, "sweeper") {
			t.Logf("figure: %s", strings.TrimSpace(line))
		}
	}
}

var memoryLine = regexp.MustCompile(`(?m)^(\w+):\s+(\d+) kB$`)

// memory is what the agent has, in KiB: VmRSS now, VmHWM at most.
func (c *conversation) memory(t *testing.T, what string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Process.Pid))
	c.must(t, err)
	for _, m := range memoryLine.FindAllStringSubmatch(string(text), -1) {
		if m[1] == what {
			n, err := strconv.Atoi(m[2])
			c.must(t, err)
			return n
		}
	}
	t.Fatalf("no %s in\n%s", what, text)
	return 0
}

const sweepTime = "kubeproxy_conntrack_reconciler_sync_duration_seconds"

// metric is what the agent shows under a name with labels, 0 if there is none.
func (n *proxy) metric(t *testing.T, name string) float64 {
	t.Helper()
	text := n.page(t, "/metrics")
	_, rest, found := strings.Cut(text, "\n"+name+" ")
	if !found {
		return 0
	}
	number, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(number, 64)
	n.must(t, err)
	return value
}

// page is what the agent shows people, by its path.
func (n *proxy) page(t *testing.T, path string) string {
	t.Helper()
	_, text := n.get(t, "http://127.0.0.1:10249"+path)
	return text
}

// get asks the agent from its node.
func (n *proxy) get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: toolTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = n.do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
	resp, err := client.Get(url)
	n.must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	n.must(t, err)
	return resp.StatusCode, string(text)
}
