package nftables

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Questions about extensions of iptables (include/uapi/linux/netfilter/nf_tables_compat.h). The
// subsystem is that of nft_compat, by which iptables-nft uses them.
const (
	getCompat = 11 << 8 // NFNL_SUBSYS_NFT_COMPAT, NFNL_MSG_COMPAT_GET

	compatName     = 1
	compatRevision = 2
	compatType     = 3

	typeMatch = 0 // a value of compatType; 1 is a target
)

// appendMatch adds the question for revision 0 of a match.
func appendMatch(b []byte, seq uint32, family uint8, name string) []byte {
	w := nfnetlink.Builder{B: b}
	w.Begin(getCompat, 0, seq, family, 0)
	w.Text(compatName, name)
	w.Number(compatRevision, 0)
	w.Number(compatType, typeMatch)
	w.End()
	return w.B
}

// findMatch asks for a match. Another revision than 0 is a match, too (EPROTONOSUPPORT of
// xt_find_revision).
func (x exchange) findMatch(family, name string) error {
	x.Seq++
	if err := x.Send(appendMatch(nil, x.Seq, families[family], name)); err != nil {
		return err
	}
	return x.Answers(func(m nfnetlink.Message) (done bool, err error) {
		switch {
		case m.Seq != x.Seq:
			return false, nil
		case m.Kind == getCompat:
			return true, nil
		case m.Kind != nfnetlink.Error:
			return true, fmt.Errorf("%w: message %#x for a match", nfnetlink.ErrMalformed, m.Kind)
		}
		errno, err := m.Verdict()
		return true, errors.Join(err, matchFault(errno))
	})
}

// matchFault reads the verdict on the question for a match.
func matchFault(errno syscall.Errno) error {
	switch errno {
	case 0, syscall.EPROTONOSUPPORT:
		return nil
	case syscall.ENOENT:
		return fmt.Errorf("this kernel lacks it: %w", ErrUnsupported)
	case syscall.EINVAL, syscall.EOPNOTSUPP: // of nfnetlink_rcv_msg, as in dumpFault
		return fmt.Errorf("this kernel lacks nft_compat: %w", ErrUnsupported)
	default:
		return wholeFault(errno)
	}
}

func checkFamily(family string) error {
	if family != "ip" && family != "ip6" {
		return fmt.Errorf("family %q: %w; it is ip or ip6", family, ErrInvalid)
	}
	return nil
}

// FindMatch returns an error that matches ErrUnsupported if rules of iptables-nft cannot use a match,
// such as "set", in a family, "ip" or "ip6". The kernel loads modules for the question. Another error
// does not mean that the match is missing.
func (h *Handle) FindMatch(ctx context.Context, family, name string) error {
	if err := checkFamily(family); err != nil {
		return err
	}
	if err := h.findMatch(ctx, family, name); err != nil {
		return fmt.Errorf("find match %s of iptables-nft, family %s: %w", name, family, err)
	}
	return nil
}
