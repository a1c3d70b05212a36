package nftables

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// exchange is one call's use of a socket.
type exchange struct{ *nfnetlink.Session }

// attempts bounds repetitions after another program changed tables at the same time.
const attempts = 4

// list reads all tables, again if they changed meanwhile.
func (x exchange) list() (map[Key]struct{}, error) {
	for attempt := 1; ; attempt++ {
		tables, err := x.listOnce()
		if !errors.Is(err, ErrInterrupted) || attempt == attempts {
			return tables, err
		}
	}
}

func (x exchange) listOnce() (map[Key]struct{}, error) {
	x.Seq++
	if err := x.Send(appendMessage(nil, getTable, nfnetlink.Dump, x.Seq, 0, "")); err != nil {
		return nil, err
	}
	tables := make(map[Key]struct{})
	interrupted := false
	err := x.Answers(func(m nfnetlink.Message) (done bool, err error) {
		if m.Seq != x.Seq {
			return false, nil
		}
		interrupted = interrupted || m.Flags&nfnetlink.Interrupted != 0
		if m.Kind == nfnetlink.Error || m.Kind == nfnetlink.Done {
			errno, err := m.Verdict()
			return true, errors.Join(err, dumpFault(errno))
		}
		key, err := readTable(m)
		tables[key] = struct{}{}
		return false, err
	})
	switch {
	case errors.Is(err, errAbsent):
		return map[Key]struct{}{}, nil
	case err != nil:
		return nil, err
	case interrupted:
		return nil, ErrInterrupted
	}
	return tables, nil
}

// leads asks for the rules of a chain and looks for one that leads to another.
func (x exchange) leads(table Key, chain, target string) (leads bool, err error) {
	x.Seq++
	if err := x.Send(appendRules(nil, x.Seq, table, chain)); err != nil {
		return false, err
	}
	err = x.Answers(func(m nfnetlink.Message) (done bool, err error) {
		if m.Seq != x.Seq {
			return false, nil
		}
		if m.Kind == nfnetlink.Error || m.Kind == nfnetlink.Done {
			errno, err := m.Verdict()
			if errno == syscall.ENOENT { // no such table, or no such chain
				return true, err
			}
			return true, errors.Join(err, dumpFault(errno))
		}
		leads = leads || leadsTo(m, target)
		return false, nil
	})
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	return leads, err
}

// generation asks for the number of the last transaction.
func (x exchange) generation() (generation uint32, err error) {
	x.Seq++
	if err := x.Send(appendMessage(nil, getGen, 0, x.Seq, 0, "")); err != nil {
		return 0, err
	}
	err = x.Answers(func(m nfnetlink.Message) (done bool, err error) {
		switch {
		case m.Seq != x.Seq:
			return false, nil
		case m.Kind == nfnetlink.Error:
			errno, err := m.Verdict()
			return true, errors.Join(err, dumpFault(errno))
		}
		generation, err = readGeneration(m)
		return true, err
	})
	if errors.Is(err, errAbsent) {
		return 0, nil
	}
	return generation, err
}

// errAbsent: this kernel has no nf_tables.
var errAbsent = errors.New("no nf_tables")

// dumpFault reads the verdict on a reading request. nfnetlink answers EINVAL for a subsystem
// that it does not have and cannot load (nfnetlink_rcv_msg).
func dumpFault(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case syscall.EINVAL, syscall.EOPNOTSUPP:
		return errAbsent
	default:
		return wholeFault(errno)
	}
}

// remove deletes those of the tables that exist, together or not at all. The error of a table that
// prevents the deletion is under its key.
func (x exchange) remove(keys []Key) (map[Key]error, error) {
	for attempt := 1; ; attempt++ {
		there, err := x.list()
		if err != nil {
			return nil, err
		}
		todo := slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { _, ok := there[k]; return !ok })
		if len(todo) == 0 {
			return nil, nil
		}
		verdicts, err := x.transact(todo)
		if err != nil {
			return nil, err
		}
		faults, gone := sortVerdicts(todo, verdicts)
		switch {
		case len(faults) > 0:
			return faults, nil
		case !gone:
			return nil, nil
		case attempt == attempts:
			return nil, ErrInterrupted
		}
	}
}

// sortVerdicts tells which tables cannot go, and whether one is gone since it was
// listed, which is well but made the kernel refuse the others.
func sortVerdicts(keys []Key, verdicts []syscall.Errno) (faults map[Key]error, gone bool) {
	for i, errno := range verdicts {
		switch errno {
		case 0:
		case syscall.ENOENT:
			gone = true
		default:
			if faults == nil {
				faults = make(map[Key]error)
			}
			faults[keys[i]] = tableFault(keys[i], errno)
		}
	}
	return faults, gone
}

// transact sends one transaction of deletions and gives the kernel's verdict on
// each. If all are 0 it is done, else nothing is. The kernel answers refusals in
// any case and in order, so only the last deletion asks for an answer.
func (x exchange) transact(keys []Key) ([]syscall.Errno, error) {
	begin := x.Seq + 1
	b := appendMessage(nil, nfnetlink.BatchBegin, 0, begin, 0, "")
	for i, k := range keys {
		var flags uint16
		if i == len(keys)-1 {
			flags = nfnetlink.Ack
		}
		b = appendMessage(b, delTable, flags, begin+1+uint32(i), families[k.Family], k.Name)
	}
	x.Seq = begin + 1 + uint32(len(keys))
	b = appendMessage(b, nfnetlink.BatchEnd, 0, x.Seq, 0, "")
	if err := x.Send(b); err != nil {
		return nil, err
	}
	verdicts := make([]syscall.Errno, len(keys))
	err := x.Answers(func(m nfnetlink.Message) (done bool, err error) {
		if m.Seq-begin > x.Seq-begin || m.Kind != nfnetlink.Error {
			return false, nil
		}
		errno, err := m.Verdict()
		if i := int(m.Seq - begin - 1); i >= 0 && i < len(keys) {
			verdicts[i] = errno
			return i == len(keys)-1, err
		}
		// On the frame: it holds for all, and comes before the verdicts.
		return true, errors.Join(err, wholeFault(errno))
	})
	return verdicts, err
}

// wholeFault is the kernel's refusal of everything, with what to do about it.
func wholeFault(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case syscall.EPERM, syscall.EACCES:
		return fmt.Errorf("%w; run with the capability CAP_NET_ADMIN", errno)
	case syscall.EBUSY, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOBUFS:
		return fmt.Errorf("%w (%w); the kernel is short of something, try again", ErrBusy, errno)
	default:
		return errno
	}
}

// tableFault is the kernel's refusal to delete one table.
func tableFault(k Key, errno syscall.Errno) error {
	switch errno {
	case syscall.EPERM:
		return fmt.Errorf("%w; a running program owns it: `nft list table %s` shows its flag owner, end that program", errno, k)
	case syscall.EBUSY:
		return fmt.Errorf("%w (%w); something still refers to it: look at `nft list table %s`", ErrBusy, errno, k)
	default:
		return wholeFault(errno)
	}
}
