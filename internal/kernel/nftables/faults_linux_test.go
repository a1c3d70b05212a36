package nftables_test

import (
	stdcmp "cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// kernel plays the other side of the protocol, written apart from the package's own
// codec, and goes wrong as it is told.
type kernel struct {
	tables []nftables.Key
	dumps  int
	wrote  int // transactions that arrived

	absent    bool                                     // no nf_tables
	matchSays syscall.Errno                            // to the question for a match; 0 describes it
	interrupt func(dump int) bool                      // the dump is marked as interrupted
	verdict   func(transaction, row int) syscall.Errno // on a deletion, row 0 being the frame
	garble    bool                                     // answers do not parse
	stuck     chan struct{}                            // a send returns when this is closed
}

func (k *kernel) handle() *nftables.Handle { return k.handleWith(nftables.Options{}) }

func (k *kernel) handleWith(opts nftables.Options) *nftables.Handle {
	return nftables.NewOver(zap.NewNop(), opts, func() (nftables.Wire, error) {
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
	seq := binary.NativeEndian.Uint32(b[8:])
	switch binary.NativeEndian.Uint16(b[4:]) {
	case 10<<8 | 1:
		w.dump(seq)
	case 10<<8 | 16:
		w.generation(seq)
	case 11 << 8:
		w.match(seq)
	case 0x10:
		w.transaction(b)
	}
	return nil
}

func (w *wire) dump(seq uint32) {
	k := w.kernel
	k.dumps++
	switch {
	case k.absent:
		w.answer(seq, syscall.EINVAL)
		return
	case k.garble:
		w.queue <- []byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3}
		return
	}
	var b []byte
	for _, table := range k.tables {
		b = nftables.AppendTable(b, seq, map[string]uint8{"ip": 2, "ip6": 10}[table.Family], table.Name)
	}
	b = nftables.AppendTable(b, seq+77, 2, "of another request")
	w.queue <- b
	end := []byte{20, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.NativeEndian.PutUint32(end[8:], seq)
	if k.interrupt != nil && k.interrupt(k.dumps) {
		end[6] |= 0x10
	}
	w.queue <- end
}

// match answers with a match, or with an error.
func (w *wire) match(seq uint32) {
	if errno := w.kernel.matchSays; errno != 0 {
		w.answer(seq, errno)
		return
	}
	b := []byte{20, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0}
	binary.NativeEndian.PutUint32(b[8:], seq+77)
	w.queue <- slices.Clone(b) // an answer to another request
	binary.NativeEndian.PutUint32(b[8:], seq)
	w.queue <- b
}

// TestAnswersAboutMatches: only two answers of the kernel mean that a match is missing.
func TestAnswersAboutMatches(t *testing.T) {
	for errno, want := range map[syscall.Errno]struct {
		missing bool
		fails   string
	}{
		0: {}, syscall.EPROTONOSUPPORT: {}, syscall.ENOENT: {true, "this kernel lacks it"}, syscall.EINVAL: {true, "this kernel lacks nft_compat"},
		syscall.EPERM: {false, "CAP_NET_ADMIN"}, syscall.ENOMEM: {false, "try again"},
	} {
		k := &kernel{matchSays: errno}
		err := k.handle().FindMatch(t.Context(), "ip", "set")
		if errors.Is(err, nftables.ErrUnsupported) != want.missing || (err == nil) != (want.fails == "") || err != nil && !strings.Contains(err.Error(), want.fails) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{stuck: make(chan struct{})}
		if err := k.handle().FindMatch(t.Context(), "ip6", "set"); !errors.Is(err, nftables.ErrBusy) || errors.Is(err, nftables.ErrUnsupported) {
			t.Errorf("a kernel that does not answer: %v", err)
		}
		close(k.stuck)
	})
}

// generation answers with the number of transactions that arrived.
func (w *wire) generation(seq uint32) {
	switch {
	case w.kernel.absent:
		w.answer(seq, syscall.EINVAL)
		return
	case w.kernel.garble:
		w.kernel.garble = false
		defer w.generation(seq)
		seq += 77 // first an answer to another request
	}
	b := []byte{28, 0, 0, 0, 15, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0}
	binary.NativeEndian.PutUint32(b[8:], seq)
	w.queue <- binary.BigEndian.AppendUint32(b, uint32(w.kernel.wrote))
}

// answer is a message of the kind error.
func (w *wire) answer(seq uint32, errno syscall.Errno) {
	b := []byte{36, 0, 0, 0, 2, 0, 0, 1}
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	w.queue <- append(b, make([]byte, 16)...)
}

// transaction answers refused messages and those that ask for an answer, as nfnetlink_rcv_batch
// does, and deletes all tables or none.
func (w *wire) transaction(b []byte) {
	k := w.kernel
	k.wrote++
	failed := false
	for row := 0; len(b) > 0; row++ {
		length, kind := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
		asked, seq := b[6]&4 != 0, binary.NativeEndian.Uint32(b[8:])
		b = b[(length+3)&^3:]
		var errno syscall.Errno
		if k.verdict != nil && kind != 0x11 {
			errno = k.verdict(k.wrote, row)
		}
		failed = failed || errno != 0
		if errno != 0 || asked {
			w.answer(seq, errno)
		}
	}
	if !failed {
		k.tables = nil
	}
}

var (
	ctx     = context.Background()
	v4      = nftables.Key{Family: "ip", Name: "kube-proxy"}
	v6      = nftables.Key{Family: "ip6", Name: "kube-proxy"}
	keysOf2 = []nftables.Key{v4, v6}
)

func TestKernelWithoutTables(t *testing.T) {
	kernels := map[string]*nftables.Handle{
		"no nf_tables": (&kernel{absent: true}).handle(),
		"no nfnetlink": nftables.NewOver(zap.NewNop(), nftables.Options{}, func() (nftables.Wire, error) {
			return nil, syscall.EPROTONOSUPPORT
		}),
	}
	for name, h := range kernels {
		t.Run(name, func(t *testing.T) {
			got, err := h.List(ctx)
			if diff := cmp.Diff(map[nftables.Key]struct{}{}, got); diff != "" || err != nil {
				t.Errorf("List: %v (-want +got):\n%s", err, diff)
			}
			if errs := h.Delete(ctx, keysOf2); errs != nil {
				t.Errorf("Delete: %v", errs)
			}
			if n, err := h.Generation(ctx); n != 0 || err != nil {
				t.Errorf("Generation: %d, %v", n, err)
			}
		})
	}
}

func TestGenerationOfThisRequest(t *testing.T) {
	k := &kernel{wrote: 258, garble: true}
	if n, err := k.handle().Generation(ctx); n != 258 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestInterruptedLists(t *testing.T) {
	tests := map[string]struct {
		interrupt func(int) bool
		want      error
		wantDumps int
	}{
		"never":  {func(int) bool { return false }, nil, 1},
		"once":   {func(dump int) bool { return dump == 1 }, nil, 2},
		"always": {func(int) bool { return true }, nftables.ErrInterrupted, 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := &kernel{tables: keysOf2, interrupt: tt.interrupt}
			got, err := k.handle().List(ctx)
			if !errors.Is(err, tt.want) || k.dumps != tt.wantDumps || (err == nil) != (len(got) == 2) {
				t.Errorf("%v, %v after %d dumps; want %v after %d", got, err, k.dumps, tt.want, tt.wantDumps)
			}
		})
	}
}

func TestRefusedTransactions(t *testing.T) {
	refuse := func(transaction, row int, errno syscall.Errno) func(int, int) syscall.Errno {
		return func(tr, r int) syscall.Errno {
			if r == row && (transaction == 0 || tr == transaction) {
				return errno
			}
			return 0
		}
	}
	together := "delete table ip6 kube-proxy: it goes together with ip kube-proxy: "
	tests := map[string]struct {
		verdict   func(int, int) syscall.Errno
		want      error // nil: done
		wantTexts []string
		wantWrote int
	}{
		"none":                      {nil, nil, nil, 1},
		"a table is gone meanwhile": {refuse(1, 1, syscall.ENOENT), nil, nil, 2},
		"a table is gone each time": {refuse(0, 2, syscall.ENOENT), nftables.ErrInterrupted, []string{
			"delete table ip kube-proxy: tables changed while they were read",
			"delete table ip6 kube-proxy: tables changed while they were read"}, 4},
		"a table is referred to": {refuse(0, 1, syscall.EBUSY), nftables.ErrBusy, []string{
			"delete table ip kube-proxy: busy (device or resource busy); something still refers to it: look at `nft list table ip kube-proxy`",
			together + "busy (device or resource busy); something still refers to it: look at `nft list table ip kube-proxy`"}, 1},
		"a table has an owner": {refuse(0, 1, syscall.EPERM), fs.ErrPermission, []string{
			"delete table ip kube-proxy: operation not permitted; a running program owns it: `nft list table ip kube-proxy` shows its flag owner, end that program",
			together + "operation not permitted; a running program owns it: `nft list table ip kube-proxy` shows its flag owner, end that program"}, 1},
		"all of it": {refuse(0, 0, syscall.EPERM), fs.ErrPermission, []string{
			"delete table ip kube-proxy: operation not permitted; run with the capability CAP_NET_ADMIN",
			"delete table ip6 kube-proxy: operation not permitted; run with the capability CAP_NET_ADMIN"}, 1},
		"no memory": {refuse(0, 0, syscall.ENOMEM), nftables.ErrBusy, []string{
			"delete table ip kube-proxy: busy (cannot allocate memory); the kernel is short of something, try again",
			"delete table ip6 kube-proxy: busy (cannot allocate memory); the kernel is short of something, try again"}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := &kernel{tables: keysOf2, verdict: tt.verdict}
			errs := k.handle().Delete(ctx, keysOf2)
			var texts []string
			for _, err := range errs {
				texts = append(texts, err.Error())
				if !errors.Is(err, tt.want) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
			}
			if diff := cmp.Diff(tt.wantTexts, texts); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if k.wrote != tt.wantWrote || (tt.want == nil) != (len(k.tables) == 0) {
				t.Errorf("%d transactions, want %d; tables %v", k.wrote, tt.wantWrote, k.tables)
			}
		})
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	k := &kernel{tables: keysOf2, garble: true}
	if got, err := k.handle().List(ctx); err == nil {
		t.Errorf("List: %v, want an error", got)
	}
	if errs := k.handle().Delete(ctx, keysOf2); len(errs) != 2 || k.wrote != 0 {
		t.Errorf("Delete: %v, %d transactions; want two errors and none", errs, k.wrote)
	}
}

// TestStuckInTheKernel: a call comes back at its deadline, and a few that do not
// come back are enough.
func TestStuckInTheKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: keysOf2, stuck: make(chan struct{})}
		h := k.handle()
		for range 4 {
			start := time.Now()
			errs := h.Delete(ctx, keysOf2)
			if len(errs) != 2 || !errors.Is(errs[1], nftables.ErrBusy) || !errors.Is(errs[0], context.DeadlineExceeded) {
				t.Errorf("errors %v", errs)
			}
			if took := time.Since(start); took != 5*time.Second {
				t.Errorf("took %s, want 5s", took)
			}
		}
		start := time.Now()
		if _, err := h.List(ctx); !errors.Is(err, nftables.ErrBusy) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("the fifth call: %v after %s, want busy at once", err, time.Since(start))
		}
		close(k.stuck)
		synctest.Wait()
		k.stuck = nil
		if errs := h.Delete(ctx, keysOf2); errs != nil || k.wrote != 1 {
			t.Errorf("after the kernel let go: %v, %d transactions", errs, k.wrote)
		}
	})
}

// Each call is told of once, with how long its caller waited.
func TestCallsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: keysOf2}
		type call struct {
			took time.Duration
			late bool
		}
		var told []call
		h := k.handleWith(nftables.Options{Called: func(took time.Duration, err error) {
			told = append(told, call{took, errors.Is(err, context.DeadlineExceeded)})
		}})
		if _, err := h.List(ctx); err != nil {
			t.Fatal(err)
		}
		k.stuck = make(chan struct{})
		if _, err := h.List(ctx); err == nil {
			t.Error("no error without an answer")
		}
		if want := []call{{}, {5 * time.Second, true}}; !slices.Equal(told, want) {
			t.Errorf("told of %+v, want %+v", told, want)
		}
		close(k.stuck)
	})
}

// Calls share a socket that stays open, and none uses one that failed another.
func TestCallsShareASocket(t *testing.T) {
	k := &kernel{tables: keysOf2}
	opened, closed := 0, 0
	h := nftables.NewOver(zap.NewNop(), nftables.Options{}, func() (nftables.Wire, error) {
		opened++
		return counted{&wire{kernel: k, queue: make(chan []byte, 100), closed: make(chan struct{})}, &closed}, nil
	})
	for _, step := range []struct {
		name                   string
		call                   func() error
		wantOpened, wantClosed int
	}{
		{"first", func() error { _, err := h.Generation(ctx); return err }, 1, 0},
		{"second", func() error { _, err := h.List(ctx); return err }, 1, 0},
		{"one that fails", func() error {
			k.garble = true
			if _, err := h.List(ctx); err == nil {
				return errors.New("it did not fail")
			}
			k.garble = false
			return nil
		}, 1, 1},
		{"after it", func() error { return errors.Join(h.Delete(ctx, keysOf2)...) }, 2, 1},
		{"once more", func() error { _, err := h.Generation(ctx); return err }, 2, 1},
		{"close", func() error { h.Close(); return nil }, 2, 2},
	} {
		if err := step.call(); err != nil || opened != step.wantOpened || closed != step.wantClosed {
			t.Errorf("%s: %v, %d sockets opened and %d closed, want %d and %d", step.name, err, opened, closed, step.wantOpened, step.wantClosed)
		}
	}
}

// counted counts how often it is closed.
type counted struct {
	nftables.Wire
	closed *int
}

func (c counted) Close() error { *c.closed++; return c.Wire.Close() }

// ear hears what it is sent, and breaks by an error.
type ear struct {
	news   chan error
	closed chan struct{}
}

func (e ear) Interrupt() { e.news <- io.ErrClosedPipe }
func (e ear) Close() error {
	close(e.closed)
	return nil
}
func (e ear) Await() ([]nftables.Writer, error) { return nil, <-e.news }

// A watch ends well with its context only, and always gives its socket back.
func TestWatchEnds(t *testing.T) {
	tests := map[string]struct {
		listens, breaks error
	}{
		"by its context":      {},
		"with its socket":     {breaks: syscall.EIO},
		"before it has begun": {listens: syscall.EINVAL},
		"without nfnetlink":   {listens: syscall.EPROTONOSUPPORT},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := ear{make(chan error, 9), make(chan struct{})}
			h := nftables.NewHearing(zap.NewNop(), func() (nftables.Ear, error) { return e, tt.listens })
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			e.news <- nil
			e.news <- nil
			if tt.breaks != nil {
				e.news <- tt.breaks
			}
			told := 0
			err := h.Watch(ctx, func([]nftables.Writer) {
				if told++; told == 3 && tt.breaks == nil {
					stop()
				}
			})
			want := stdcmp.Or(tt.listens, tt.breaks)
			if !errors.Is(err, want) {
				t.Errorf("ended with %v, want %v", err, want)
			}
			if unsupported := errors.Is(tt.listens, syscall.EPROTONOSUPPORT); errors.Is(err, nftables.ErrUnsupported) != unsupported {
				t.Errorf("error %v, is to be %v: %t", err, nftables.ErrUnsupported, unsupported)
			}
			if tt.listens != nil {
				return
			}
			<-e.closed
			if told != 3 {
				t.Errorf("told %d times, want 3", told)
			}
		})
	}
}
