package packet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// contest has 800 Services of one tenant claim one external IP on 50 ports each. Each is younger than the one behind it in the order
// of names, so that the holder changes again and again.
func contest() []byte {
	const services, ports = 800, 50
	var list strings.Builder
	for p := range ports {
		fmt.Fprintf(&list, "{name: p%d, port: %d},", p, 1000+p)
	}
	var b strings.Builder
	for s := range services {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: s%03d, namespace: tenant, creationTimestamp: \"%s\"}\n", s,
			time.Date(2026, 1, 1, 0, services-s, 0, 0, time.UTC).Format(time.RFC3339))
		fmt.Fprintf(&b, "spec: {clusterIP: 10.97.%d.%d, externalIPs: [203.0.113.99], ports: [%s]}\n---\n", s/250, s%250+1, list.String())
	}
	return []byte(b.String())
}

// endsInEveryState stops the agent at moments of a first start that a tenant's claims make long, and when it is idle.
func endsInEveryState(t *testing.T, n *proxy) {
	t.Helper()
	n.writeFile(t, "tenant.yaml", contest())
	end := func(when string) {
		took, err := n.stop(t)
		t.Logf("figure: SIGTERM %s: ended after %s", when, took.Round(time.Millisecond))
		if err != nil {
			t.Errorf("SIGTERM %s: %v, want exit status 0", when, err)
		}
	}
	for _, after := range []int{0, 200, 500, 1000, 2000, 4000} {
		said := len(n.output.String())
		n.launch(t, append([]string{program()}, n.flags...))
		poll(t, "the agent to speak", settleTimeout, func() error { // before that it has the signal's ordinary effect
			if len(n.output.String()) == said {
				return errors.New("silence")
			}
			return nil
		})
		time.Sleep(time.Duration(after) * time.Millisecond)
		end(fmt.Sprintf("%d ms after the first line", after))
	}
	n.start(t)
	end("when idle")
}

// TestEndsInEveryState: SIGTERM ends the agent soon, whatever a tenant has it do.
func TestEndsInEveryState(t *testing.T) {
	w := newWorld(t)
	endsInEveryState(t, newAgent(t, w.node))
}

// TestIPTablesEndsInEveryState: the same in iptables mode.
func TestIPTablesEndsInEveryState(t *testing.T) {
	needKernel(t)
	t.Parallel()
	w := iptablesWorld(t)
	endsInEveryState(t, newAgent(t, w.node, inIPTables("nft")...))
}
