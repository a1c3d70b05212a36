package rules_test

import (
	"context"
	endian "encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// generation asks the kernel for that of nftables (NFT_MSG_GETGEN) in the namespace of
// the calling thread.
func generation(context.Context) (uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	ask := make([]byte, unix.SizeofNlMsghdr+4)
	endian.NativeEndian.PutUint32(ask, uint32(len(ask)))
	endian.NativeEndian.PutUint16(ask[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	endian.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	got := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, got, 0)
	if err != nil {
		return 0, err
	}
	const first = unix.SizeofNlMsghdr + 4 + 4 // the value of NFTA_GEN_ID
	if n < first+4 || endian.NativeEndian.Uint16(got[first-2:]) != unix.NFTA_GEN_ID {
		return 0, fmt.Errorf("answer of %d bytes", n)
	}
	return uint64(endian.BigEndian.Uint32(got[first:])), nil
}

// What was listed is listed again when somebody has written rules, and only then; our own
// writes are told from those of others.
func TestListingIsKept(t *testing.T) {
	needBackend(t, rules.NFT)
	namespace(t)
	h := newHandle(t, rules.Options{Generation: generation}) // lists once to choose the backend
	if h.Backend() != rules.NFT {
		t.Skipf("the tools of this machine prefer %s", h.Backend())
	}
	step := func(what string, saves uint64, do func() error) {
		t.Helper()
		before := h.Counters().Save
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := h.Counters().Save - before; got != saves {
			t.Errorf("%s: %d listings, want %d", what, got, saves)
		}
	}
	var chains map[rules.ChainKey]rules.Chain
	var jumps map[rules.JumpKey]rules.Jump
	list := func() (err error) {
		chains, jumps, err = h.List(t.Context())
		return err
	}
	key := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-A"}
	first := func(errs []error) error {
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	write := func(rule string) func() error {
		return func() error {
			return first(h.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Update, Key: key, Chain: rules.Chain{Rules: rule}}}))
		}
	}
	jump := func() error {
		var changes []rules.JumpChange
		for _, hook := range []string{"PREROUTING", "OUTPUT", "POSTROUTING"} {
			changes = append(changes, rules.JumpChange{Op: rules.Add, Key: rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: hook, Target: "KUBE-A"}})
		}
		return first(h.WriteJumps(t.Context(), changes))
	}
	step("after the backend was chosen", 0, list)
	step("a chain", 0, write("-j RETURN"))
	step("jumps behind our own chain", 0, jump)
	step("what we wrote", 1, list) // IPv6 is as it was
	if chains[key].Rules != "-j RETURN" || len(jumps) != 3 {
		t.Errorf("chains %v, jumps %v", chains, jumps)
	}
	step("nothing new", 0, list)
	tool(t, "", binary(rules.IPv4, rules.NFT, ""), "-t", "nat", "-F", "PREROUTING")
	step("a jump that somebody else took", 2, list)
	if len(jumps) != 2 {
		t.Errorf("jumps %v", jumps)
	}
	tool(t, "", binary(rules.IPv4, rules.NFT, ""), "-t", "nat", "-F", "OUTPUT")
	step("our chain after somebody else's change", 0, write("-j ACCEPT"))
	step("jumps after that", 1, jump)
	step("everything", 2, list)
	if chains[key].Rules != "-j ACCEPT" || len(jumps) != 3 {
		t.Errorf("chains %v, jumps %v", chains, jumps)
	}
}
