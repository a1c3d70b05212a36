package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Lists is the source of lists; *agent.Agent is one.
type Lists interface {
	Services(ctx context.Context) ([]model.ServiceID, error)
	ServicesInfo(ctx context.Context, ids []model.ServiceID, visit func(agent.ServiceInfo)) error
	Pending(ctx context.Context, most int) ([]dataplane.PendingTable, error)
	Moving(ctx context.Context, list dataplane.MovingList) (dataplane.MovingList, error)
}

// Paths of lists.
const (
	pathServices  = "/v1/services"
	pathFrontends = "/v1/frontends"
	pathBackends  = "/v1/backends"
	pathPending   = "/v1/pending"
	pathConflicts = "/v1/conflicts"
	pathDraining  = "/v1/draining"
)

// The most rows of a table that are pending, and of what moves, that a list has: the loop makes them all at once.
const (
	mostPending = 500
	mostMoving  = 1000
)

// handleLists serves lists. They are sent as they are made, some Services at a time, so that neither the loop nor
// the memory is held for a whole cluster.
func handleLists(mux *http.ServeMux, l Lists) {
	mux.Handle("GET "+pathServices, known(l, Filter.ofService, serviceRows))
	mux.Handle("GET "+pathFrontends, known(l, Filter.ofService, frontendRows))
	mux.Handle("GET "+pathBackends, known(l, Filter.ofService, backendRows))
	mux.Handle("GET "+pathNames, known(l, Filter.ofService, nameRows))
	anyService := func(Filter, model.ServiceID) bool { return true } // one that is chosen may be the holder
	mux.Handle("GET "+pathConflicts, known(l, anyService, conflictRows))
	mux.Handle("GET "+pathPending, listing(func(ctx context.Context, _ Filter, out *listWriter) error {
		tables, err := l.Pending(ctx, mostPending)
		for _, t := range tables {
			for _, r := range pendingRows(t) {
				out.row(r)
			}
			out.leaveOut(t.Table, t.More)
		}
		return err
	}))
	mux.Handle("GET "+pathDraining, listing(func(ctx context.Context, f Filter, out *listWriter) error {
		list, err := l.Moving(ctx, f.moving(mostMoving))
		slices.SortFunc(list.Rows, compareMoving)
		for _, m := range list.Rows {
			out.row(movingRow(m))
		}
		out.leaveOut("draining", list.More)
		return err
	}))
}

// known lists the rows of each selected Service.
func known[R any](l Lists, chosen func(Filter, model.ServiceID) bool, rows func(agent.ServiceInfo, Filter) []R) http.Handler {
	return listing(func(ctx context.Context, f Filter, out *listWriter) error {
		ids, err := l.Services(ctx)
		if err != nil {
			return err
		}
		ids = slices.DeleteFunc(ids, func(id model.ServiceID) bool { return !chosen(f, id) })
		return l.ServicesInfo(ctx, ids, func(k agent.ServiceInfo) {
			out.heard()
			for _, r := range rows(k, f) {
				out.row(r)
			}
		})
	})
}

// listing answers with one list. The loop has answerWithin for each piece of it.
func listing(fill func(context.Context, Filter, *listWriter) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f, err := parseFilter(req.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, heard, stop := silence(req.Context(), answerWithin)
		defer stop()
		out := &listWriter{w: w, heard: heard, enc: json.NewEncoder(w)}
		out.end(fill(ctx, f, out))
	})
}

// silence ends a context when nothing was heard for so long.
func silence(parent context.Context, d time.Duration) (ctx context.Context, heard, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	t := time.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { t.Reset(d) }, func() { t.Stop(); cancel(nil) }
}

// listWriter writes a List whose rows come one by one.
type listWriter struct {
	w     http.ResponseWriter
	heard func()
	enc   *json.Encoder
	begun bool
	more  map[string]int
	err   error // error of writing: the client went away
}

func (l *listWriter) write(text string) {
	if l.err == nil {
		_, l.err = io.WriteString(l.w, text)
	}
}

func (l *listWriter) begin() {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/json")
		l.write(`{"items":[`)
		return
	}
	l.write(",")
}

// row writes one row.
func (l *listWriter) row(r any) {
	if l.begin(); l.err == nil {
		l.err = l.enc.Encode(r)
	}
}

// leaveOut notes that so many rows are not sent.
func (l *listWriter) leaveOut(what string, n int) {
	if n == 0 {
		return
	}
	if l.more == nil {
		l.more = map[string]int{}
	}
	l.more[what] += n
}

// end closes the list, if it is whole; a part of it is never taken for one: the connection breaks off.
func (l *listWriter) end(err error) {
	switch {
	case err != nil && !l.begun:
		busy(l.w, err)
		return
	case err != nil:
		panic(http.ErrAbortHandler)
	case !l.begun:
		l.begin()
	}
	l.write("]")
	if len(l.more) > 0 && l.err == nil {
		l.write(`,"more":`)
		l.err = l.enc.Encode(l.more)
	}
	l.write("}\n")
}

func compareMoving(a, b dataplane.Moving) int {
	return cmp.Or(a.Service.Compare(b.Service), a.Frontend.Compare(b.Frontend), a.Backend.Compare(b.Backend))
}

// moving asks for what is chosen of what moves.
func (f Filter) moving(most int) dataplane.MovingList {
	list := dataplane.MovingList{Most: most}
	if f.ByService() || !f.VIP.Everywhere() {
		list.At = func(k model.FrontendKey, id model.ServiceID) bool {
			return f.ofService(id) && f.VIP.Has(k.Addr, k.Port)
		}
	}
	if !f.Backend.Everywhere() {
		list.To = func(to netip.AddrPort) bool { return f.Backend.Has(to.Addr(), to.Port()) }
	}
	return list
}

// ask asks for a list; its error has a remedy.
func ask[R any](ctx context.Context, c *Client, path string, f Filter) (List[R], error) {
	var out List[R]
	ctx, heard, stop := silence(ctx, c.http.Timeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path+"?"+f.query(), nil)
	if err != nil {
		return out, err
	}
	client := c.http
	client.Timeout = 0 // it would count for the whole list
	resp, err := client.Do(req)
	if err != nil {
		return out, c.broken(ctx, err)
	}
	defer resp.Body.Close()
	body := hearing{resp.Body, heard}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(body, 4096))
		return out, fmt.Errorf("the agent reports: %s", oneLine(string(text)))
	}
	if err := json.NewDecoder(body).Decode(&out); err != nil {
		return List[R]{}, c.broken(ctx, err)
	}
	return out, nil
}

// broken explains an answer that did not come, or not to its end.
func (c *Client) broken(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return c.explain(cause)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the answer of the agent at %s is incomplete: its loop is stuck, or it has ended", c.path)
	}
	return c.explain(err)
}

// hearing reports each piece that was read.
type hearing struct {
	io.Reader
	heard func()
}

// Read implements io.Reader.
func (h hearing) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	h.heard()
	return n, err
}

// Services asks for what the agent knows of Services.
func (c *Client) Services(ctx context.Context, f Filter) (List[ServiceRow], error) {
	return ask[ServiceRow](ctx, c, pathServices, f)
}

// Frontends asks for what Services want to answer on.
func (c *Client) Frontends(ctx context.Context, f Filter) (List[FrontendRow], error) {
	return ask[FrontendRow](ctx, c, pathFrontends, f)
}

// Backends asks where frontends send to.
func (c *Client) Backends(ctx context.Context, f Filter) (List[BackendRow], error) {
	return ask[BackendRow](ctx, c, pathBackends, f)
}

// Pending asks for what is not in place; only the zero Filter has a meaning.
func (c *Client) Pending(ctx context.Context, f Filter) (List[PendingRow], error) {
	return ask[PendingRow](ctx, c, pathPending, f)
}

// Conflicts asks for frontends that several Services want. A Service that is chosen is the holder or the loser.
func (c *Client) Conflicts(ctx context.Context, f Filter) (List[ConflictRow], error) {
	return ask[ConflictRow](ctx, c, pathConflicts, f)
}

// Draining reads the draining destinations and those in slow start.
func (c *Client) Draining(ctx context.Context, f Filter) (List[MovingRow], error) {
	return ask[MovingRow](ctx, c, pathDraining, f)
}

// Health lists what the agent's health is judged by.
func (c *Client) Health(ctx context.Context, f Filter) (List[HealthRow], error) {
	return ask[HealthRow](ctx, c, pathHealth, f)
}
