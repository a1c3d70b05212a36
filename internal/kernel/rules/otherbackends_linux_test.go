package rules_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// inNamespaceOf runs f on a thread of its own in the calling thread's namespace.
func inNamespaceOf(t *testing.T, f func()) (done chan struct{}) {
	t.Helper()
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer ns.Close()
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	return done
}

// An audit lists while the loop writes: it sees a table before or after a write.
func TestListBesideWrite(t *testing.T) {
	forBackends(t, func(t *testing.T, b rules.Backend) {
		h := newHandle(t, rules.Options{Backend: b, Families: []rules.Family{rules.IPv4}})
		state := func(rule string) map[rules.ChainKey]rules.Chain {
			out := map[rules.ChainKey]rules.Chain{}
			for i := range 50 {
				out[rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: fmt.Sprintf("KUBE-%02d", i)}] = rules.Chain{Rules: rule}
			}
			return out
		}
		states := []map[rules.ChainKey]rules.Chain{state("-j RETURN"), state("-j ACCEPT")}
		write := func(n int) {
			t.Helper()
			var changes []rules.ChainChange
			for key, chain := range states[n%2] {
				changes = append(changes, rules.ChainChange{Op: rules.Update, Key: key, Chain: chain})
			}
			if errs := h.WriteChains(t.Context(), changes); errs != nil {
				t.Error(errs)
			}
		}
		write(0)
		listed := inNamespaceOf(t, func() {
			for range 20 {
				got, _, err := h.List(t.Context())
				if err != nil {
					t.Error(err)
				} else if !cmp.Equal(got, states[0]) && !cmp.Equal(got, states[1]) {
					t.Errorf("a list is neither state:\n%s", cmp.Diff(states[0], got))
				}
			}
		})
		for n, writing := 1, true; writing; n++ {
			select {
			case <-listed:
				writing = false
			default:
				write(n)
			}
		}
	})
}

// The size of an iptables mode's first write with some hundreds of Services.
func TestThirtyThousandLines(t *testing.T) {
	if os.Getenv("KUBE_IPVS_WHERE") == "vm" {
		t.Skip("an emulated machine takes minutes")
	}
	forBackends(t, func(t *testing.T, b rules.Backend) {
		size, want := 10_000, map[rules.Backend]uint64{rules.NFT: 4, rules.Legacy: 1} // whole chains in at most 10,000 lines
		if testing.Short() {
			size, want = 4_000, map[rules.Backend]uint64{rules.NFT: 2, rules.Legacy: 1}
		}
		h := newHandle(t, rules.Options{Backend: b, Families: []rules.Family{rules.IPv4}})
		key := func(i int) rules.ChainKey {
			return rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: fmt.Sprintf("KUBE-SEP-%05d", i)}
		}
		changes := make([]rules.ChainChange, size)
		for i := range changes {
			changes[i] = rules.ChainChange{Op: rules.Add, Key: key(i), Chain: rules.Chain{
				Rules: fmt.Sprintf("-p tcp -m comment --comment \"ns%d/svc:p80\" -j RETURN\n-j RETURN", i),
			}}
		}
		if errs := h.WriteChains(t.Context(), changes); errs != nil {
			t.Fatal(errs[0])
		}
		if got := h.Counters().Restore; got != want[b] {
			t.Errorf("%d restores, want %d", got, want[b])
		}
		one := []rules.RuleChange{{Op: rules.Add, Chain: key(0), Rule: "-p udp -j RETURN"}, {Op: rules.Delete, Chain: key(1), Rule: "-j RETURN"}}
		if _, errs := h.Write(t.Context(), nil, one); errs != nil {
			t.Fatal(errs)
		}
		chains, _, err := h.List(t.Context())
		if err != nil || len(chains) != size {
			t.Fatalf("%d chains, %v", len(chains), err)
		}
		if got := chains[key(0)].Rules; !strings.HasPrefix(got, "-p udp -j RETURN\n") {
			t.Errorf("the first rule of %q is not the one added", got)
		}
		if got := chains[key(1)].Rules; strings.HasSuffix(got, "\n-j RETURN") {
			t.Errorf("the rule that was deleted is in %q", got)
		}
	})
}
