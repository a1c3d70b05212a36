package nft_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
)

// Kinds of messages and attributes that the scripted kernel knows.
const (
	subsystem  = nfnetlink.NFTables << 8
	newTable   = subsystem
	getTable   = subsystem | 1
	getChain   = subsystem | 4
	getRule    = subsystem | 7
	newSet     = subsystem | 9
	getSet     = subsystem | 10
	getSetElem = subsystem | 13
	newGen     = subsystem | 15
	getGen     = subsystem | 16

	tableName = 1
	setName   = 2
)

// kernel has a table of ours of IPv4 with one set without elements, and goes wrong as it is told.
type kernel struct {
	dumps       int
	generations int
	opened      int

	generation func(asked int) uint32
	// answer replaces the end of a dump; nil is none.
	answer map[uint16]func(dump int) (flags uint16, errno syscall.Errno)
	garble bool
	// stuck is closed when a send returns; silent swallows requests.
	stuck  chan struct{}
	silent bool
}

func (k *kernel) handle() *nft.Handle {
	return nft.NewOver(zap.NewNop(), nft.Options{}, func() (nfnetlink.Socket, error) {
		k.opened++
		return &wire{kernel: k, queue: make(chan []byte, 100), closed: make(chan struct{})}, nil
	})
}

type wire struct {
	kernel *kernel
	queue  chan []byte
	once   sync.Once
	closed chan struct{}
}

func (w *wire) Interrupt()   { w.once.Do(func() { close(w.closed) }) }
func (w *wire) Close() error { w.Interrupt(); return nil }

func (w *wire) Receive() ([]byte, error) {
	select {
	case b := <-w.queue:
		return b, nil
	case <-w.closed:
		return nil, io.ErrClosedPipe
	}
}

func (w *wire) Send(b []byte) error {
	k := w.kernel
	if k.stuck != nil {
		<-k.stuck
		return io.ErrClosedPipe
	}
	if k.silent {
		return nil
	}
	m, _, err := nfnetlink.Next(b)
	if err != nil {
		return err
	}
	var out nfnetlink.Builder
	late := m.Seq - 1 // an answer to an earlier request comes first
	out.Begin(newGen, 0, late, 0, 0)
	out.Number(1, 4711)
	out.End()
	switch m.Kind {
	case getGen:
		k.generations++
		generation := uint32(7)
		if k.generation != nil {
			generation = k.generation(k.generations)
		}
		out.Begin(newGen, 0, m.Seq, 0, 0)
		out.Number(1, generation)
		out.End()
	case getTable, getChain, getRule, getSet, getSetElem:
		w.dump(&out, m)
	}
	if k.garble {
		w.queue <- []byte{3, 0, 0, 0, 1, 2, 3}
	}
	w.queue <- out.B
	return nil
}

func (w *wire) dump(out *nfnetlink.Builder, m nfnetlink.Message) {
	k := w.kernel
	k.dumps++
	var flags uint16
	if fail := k.answer[m.Kind]; fail != nil {
		var errno syscall.Errno
		if flags, errno = fail(k.dumps); errno != 0 {
			out.B = append(out.B, ending(nfnetlink.Error, 0, m.Seq, errno)...)
			return
		}
	}
	switch m.Kind {
	case getTable:
		for _, name := range []string{"other", nft.TableName} {
			out.Begin(newTable, 0, m.Seq, uint8(nft.IPv4), 0)
			out.Text(tableName, name)
			out.End()
		}
	case getSet:
		for _, table := range []string{"other", nft.TableName} {
			if name := m.Attrs().Text(setName); name != "" && table == "other" {
				continue
			}
			out.Begin(newSet, 0, m.Seq, uint8(nft.IPv4), 0)
			out.Text(tableName, table)
			out.Text(setName, "a")
			out.Number(4, 7) // the type and the length of an address of IPv4
			out.Number(5, 4)
			out.End()
		}
	}
	out.B = append(out.B, ending(nfnetlink.Done, flags, m.Seq, 0)...)
}

// ending is a message that ends a dump, or a refusal.
func ending(kind, flags uint16, seq uint32, errno syscall.Errno) (b []byte) {
	b = nfnetlink.Native.AppendUint32(b, 36)
	b = nfnetlink.Native.AppendUint16(b, kind)
	b = nfnetlink.Native.AppendUint16(b, flags)
	b = nfnetlink.Native.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0)
	b = nfnetlink.Native.AppendUint32(b, uint32(-int32(errno)))
	return append(b, make([]byte, 16)...)
}

var setA = nft.Key{Family: nft.IPv4, Name: "a"}

// read reads everything in both ways.
func read(t *testing.T, h *nft.Handle) (nft.Ruleset, error) {
	t.Helper()
	r, err := h.Read(t.Context())
	_, list, listErr := h.Elements(t.Context(), setA)
	if (err == nil) != (listErr == nil) || len(list) > 0 {
		t.Errorf("Read: %v, Elements: %v, %v", err, list, listErr)
	}
	return r, err
}

func TestReadsOurTablesOnly(t *testing.T) {
	r, err := read(t, (&kernel{}).handle())
	if err != nil || len(r.Tables) != 1 || r.Tables[nft.IPv4] != 0 || r.Generation != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	if s := r.Sets[setA]; len(r.Sets) != 1 || s != (nft.Set{Shape: nft.Addr}) {
		t.Errorf("sets %+v", r.Sets)
	}
}

// TestInterruptedDumps: a dump that met a change is read again, and never believed.
func TestInterruptedDumps(t *testing.T) {
	for _, kind := range []uint16{getTable, getChain, getRule, getSet} {
		once := &kernel{answer: map[uint16]func(int) (uint16, syscall.Errno){kind: func(dump int) (uint16, syscall.Errno) {
			if dump > 4 { // the first reading has four dumps
				return 0, 0
			}
			return nfnetlink.Interrupted, 0
		}}}
		if r, err := once.handle().Read(t.Context()); err != nil || len(r.Sets) != 1 {
			t.Errorf("dump %#x interrupted once: %+v, %v", kind, r, err)
		}
		always := &kernel{answer: map[uint16]func(int) (uint16, syscall.Errno){kind: func(int) (uint16, syscall.Errno) {
			return nfnetlink.Interrupted, 0
		}}}
		if r, err := always.handle().Read(t.Context()); !errors.Is(err, nft.ErrInterrupted) || r.Tables != nil {
			t.Errorf("dump %#x always interrupted: %+v, %v", kind, r, err)
		}
	}
	elements := &kernel{answer: map[uint16]func(int) (uint16, syscall.Errno){getSetElem: func(int) (uint16, syscall.Errno) {
		return nfnetlink.Interrupted, 0
	}}}
	if _, _, err := elements.handle().Elements(t.Context(), setA); !errors.Is(err, nft.ErrInterrupted) {
		t.Errorf("elements always interrupted: %v", err)
	}
}

// TestGenerationChanges: dumps with a transaction between them are not of one moment.
func TestGenerationChanges(t *testing.T) {
	k := &kernel{generation: func(asked int) uint32 { return uint32(min(asked, 4)) }}
	if r, err := k.handle().Read(t.Context()); err != nil || r.Generation != 4 {
		t.Errorf("generation %d, %v; want 4", r.Generation, err)
	}
	k = &kernel{generation: func(asked int) uint32 { return uint32(asked) }}
	if _, err := read(t, k.handle()); !errors.Is(err, nft.ErrInterrupted) {
		t.Errorf("it changes all the time: %v, want %v", err, nft.ErrInterrupted)
	}
}

// TestReadErrors: an error is never an empty list. Only a kernel without nf_tables has no tables.
func TestReadErrors(t *testing.T) {
	for kind, name := range map[uint16]string{getTable: "tables", getChain: "chains", getRule: "rules", getSet: "sets"} {
		for errno, want := range map[syscall.Errno]error{syscall.ENOMEM: nft.ErrBusy, syscall.EPERM: syscall.EPERM, syscall.EIO: syscall.EIO} {
			k := &kernel{answer: map[uint16]func(int) (uint16, syscall.Errno){kind: func(int) (uint16, syscall.Errno) { return 0, errno }}}
			r, err := k.handle().Read(t.Context())
			if !errors.Is(err, want) || r.Tables != nil || r.Sets != nil {
				t.Errorf("%s, %v: %+v, %v; want %v", name, errno, r, err, want)
			}
		}
	}
	absent := &kernel{answer: map[uint16]func(int) (uint16, syscall.Errno){getTable: func(int) (uint16, syscall.Errno) { return 0, syscall.EINVAL }}}
	if r, err := absent.handle().Read(t.Context()); err != nil || r.Tables == nil || len(r.Tables) != 0 {
		t.Errorf("without nf_tables: %+v, %v", r, err)
	}
	gone := &kernel{answer: map[uint16]func(int) (uint16, syscall.Errno){getSet: func(int) (uint16, syscall.Errno) { return 0, syscall.ENOENT }}}
	if _, _, err := gone.handle().Elements(t.Context(), setA); !errors.Is(err, nft.ErrNotExist) {
		t.Errorf("elements of a set that is gone: %v, want %v", err, nft.ErrNotExist)
	}
	if _, err := gone.handle().Read(t.Context()); !errors.Is(err, nft.ErrInterrupted) {
		t.Errorf("a table that is gone while it is read: %v, want %v", err, nft.ErrInterrupted)
	}
}

func TestGarbledAnswers(t *testing.T) {
	k := &kernel{garble: true}
	h := k.handle()
	for range 2 {
		if _, err := read(t, h); err == nil {
			t.Error("garbage was read")
		}
	}
	if k.opened < 2 {
		t.Errorf("%d sockets, want a new one after garbage", k.opened)
	}
}

// TestNoAnswer: a call returns at its deadline, its socket is not used again, and the kernel's time
// inside a send is no matter.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{silent: true}
		h := k.handle()
		row := nft.Pass{Tables: []nft.TableChange{{Op: nft.Add, Family: nft.IPv4}}}
		start := time.Now()
		_, err := h.Read(t.Context())
		o := h.Apply(t.Context(), row)
		for _, err := range []error{err, o.Err()} {
			if !errors.Is(err, nft.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want %v", err, nft.ErrBusy)
			}
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("took %s, want twice six times 5s", took)
		}
		synctest.Wait() // for the calls that were given up
		k.silent = false
		if _, err := h.Read(t.Context()); err != nil || k.opened != 3 {
			t.Errorf("%v, %d sockets", err, k.opened)
		}
		synctest.Wait()
		k.stuck = make(chan struct{})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Apply(short, row).Err(); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "add table ip kube-ipvs: no answer from the kernel") {
			t.Errorf("stuck: %v", err)
		}
		for range 5 {
			_ = h.Apply(short, row)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = h.Read(ctx)
			cancel()
		}
		if !errors.Is(err, nft.ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after many that are stuck: %v, want %v at once", err, nft.ErrBusy)
		}
		close(k.stuck)
		synctest.Wait()
		k.stuck = nil
		if _, err := h.Read(t.Context()); err != nil {
			t.Error(err)
		}
		h.Close()
	})
}
