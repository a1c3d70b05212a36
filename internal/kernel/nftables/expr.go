package nftables

import (
	"errors"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Numbers of nf_tables (include/uapi/linux/netfilter/nf_tables.h).
const (
	newChain   = nfnetlink.NFTables<<8 | 3
	getChain   = nfnetlink.NFTables<<8 | 4
	newSet     = nfnetlink.NFTables<<8 | 9
	getSet     = nfnetlink.NFTables<<8 | 10
	newSetElem = nfnetlink.NFTables<<8 | 12
	getSetElem = nfnetlink.NFTables<<8 | 13

	chainTable   = 1
	chainName    = 3
	chainHook    = 4
	chainPolicy  = 5
	chainUse     = 6
	hookNumber   = 1
	hookPriority = 2

	ruleHandle = 3
	ruleExprs  = 4

	exprName = 1
	exprData = 2

	setName     = 2
	setFlags    = 3
	setInterval = 4
	elemsSet    = 2
	elemsList   = 3
	elemKey     = 1
	elemData    = 2
	elemFlags   = 3
	elemKeyEnd  = 10

	dataValue   = 1
	dataVerdict = 2
	verdictCode = 1
)

// exprFields say which attribute of an expression is which field of Expr.
var exprFields = map[string]map[uint16]func(*Expr, attrs, uint16){
	"immediate": {1: target, 2: operand},
	"bitwise":   {1: source, 2: target, 3: length, 4: operand, 5: second, 6: op},
	"byteorder": {1: source, 2: target, 3: op, 4: length},
	"cmp":       {1: source, 2: op, 3: operand},
	"range":     {1: source, 2: op, 3: operand, 4: second},
	"lookup":    {1: setOf, 2: source, 3: target, 5: op},
	"payload":   {1: target, 2: base, 3: offset, 4: length, 5: source},
	"meta":      {1: target, 2: key, 3: source},
	"ct":        {1: target, 2: key, 4: source},
	"fib":       {1: target},
	"rt":        {1: target},
	"socket":    {2: target},
	"hash":      {2: target},
	"numgen":    {1: target},
	"osf":       {1: target},
	"exthdr":    {1: target},
	"xfrm":      {1: target},
	"tunnel":    {2: target},
	"match":     {1: extension},
	"target":    {1: extension},
}

func source(e *Expr, a attrs, kind uint16) { e.Source = a.Number(kind) }
func target(e *Expr, a attrs, kind uint16) { e.Target = a.Number(kind) }
func key(e *Expr, a attrs, kind uint16)    { e.Key = a.Number(kind) }
func op(e *Expr, a attrs, kind uint16)     { e.Op = a.Number(kind) }
func base(e *Expr, a attrs, kind uint16)   { e.Base = a.Number(kind) }
func offset(e *Expr, a attrs, kind uint16) { e.Offset = a.Number(kind) }
func length(e *Expr, a attrs, kind uint16) { e.Len = a.Number(kind) }
func setOf(e *Expr, a attrs, kind uint16)  { e.Set = a.Text(kind) }
func second(e *Expr, a attrs, kind uint16) { e.More = value(a, kind) }

func extension(e *Expr, a attrs, kind uint16) { e.Extension = a.Text(kind) }

func operand(e *Expr, a attrs, kind uint16) {
	if data, ok := a.Get(kind); ok {
		e.Data, e.Verdict = data.Bytes(dataValue), verdict(data)
	}
}

// expr reads one element of the list of a rule.
func expr(a attrs) Expr {
	e := Expr{Name: a.Text(exprName)}
	data, ok := a.Get(exprData)
	if !ok {
		return e
	}
	for kind, take := range exprFields[e.Name] {
		if data.Has(kind) {
			take(&e, data, kind)
		}
	}
	return e
}

// verdict reads a nested verdict, nil where there is none.
func verdict(a attrs) *Verdict {
	v, ok := a.Get(dataVerdict)
	if !ok {
		return nil
	}
	return &Verdict{Code: int32(v.Number(verdictCode)), Chain: v.Text(verdictChain)}
}

// attrs is a list of attributes. A malformed one reads as absent, and Err returns why.
type attrs = nfnetlink.Attrs

// value is the value inside of an attribute of data.
func value(a attrs, kind uint16) []byte {
	v, ok := a.Get(kind)
	if !ok {
		return nil
	}
	return v.Bytes(dataValue)
}

// dump sends a question and visits the answers of a kind until the kernel reports that there are no
// more. A table or chain that is deleted meanwhile makes the dump fail with ErrInterrupted.
func (x exchange) dump(question []byte, kind uint16, visit func(family uint8, a attrs) error) error {
	return x.answered(question, kind, true, visit)
}

// ask sends a question that has one answer.
func (x exchange) ask(question []byte, kind uint16, visit func(family uint8, a attrs) error) error {
	return x.answered(question, kind, false, visit)
}

func (x exchange) answered(question []byte, kind uint16, many bool, visit func(family uint8, a attrs) error) error {
	x.Seq++
	if err := x.Send(question); err != nil {
		return err
	}
	interrupted := false
	var failed error
	err := x.Answers(func(m nfnetlink.Message) (done bool, err error) {
		switch {
		case m.Seq != x.Seq:
			return false, nil
		case m.Kind == nfnetlink.Error || m.Kind == nfnetlink.Done:
			errno, err := m.Verdict()
			if errno == syscall.ENOENT {
				return true, errors.Join(err, ErrInterrupted)
			}
			return true, errors.Join(err, dumpFault(errno))
		case m.Kind != kind:
			return false, nil
		}
		interrupted = interrupted || m.Flags&nfnetlink.Interrupted != 0
		if failed == nil {
			failed = visit(m.Family(), m.Attrs())
		}
		return !many, nil
	})
	switch {
	case errors.Is(err, errAbsent):
		return nil
	case err != nil:
		return err
	case interrupted:
		return ErrInterrupted
	}
	return failed
}
