package plane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// How a request asks for objects.
const (
	Stream = "list by watch" // a watch that begins with all objects (sendInitialEvents)
	Resume = "watch"         // one that goes on from a version
	List   = "list"
	Count  = "count" // a list of one object, which tells how many there are
)

// Request is one that an agent made, as the server's audit log has it.
type Request struct {
	Agent    string // its user agent
	Resource string
	How      string
	Code     int
	Received time.Time
	// Timeout is how long a watch is to last at most.
	Timeout time.Duration
}

type auditEvent struct {
	AuditID    string `json:"auditID"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	ObjectRef  struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

func (p *Plane) auditLog() string { return filepath.Join(p.dir, "audit.log") }

// Mark is a place in the audit log: Requests are those after it.
func (p *Plane) Mark() (int64, error) {
	info, err := os.Stat(p.auditLog())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return info.Size(), nil
}

// Requests are those that agents made since some time and that were answered after a mark, in the order of the answers. Watches of
// before that ended meanwhile are none of them.
func (p *Plane) Requests(mark int64, since time.Time) ([]Request, error) {
	f, err := os.Open(p.auditLog())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(mark, io.SeekStart); err != nil {
		return nil, err
	}
	all, err := parseRequests(f)
	return slices.DeleteFunc(all, func(q Request) bool { return q.Received.Before(since) }), err
}

// parseRequests reads an audit log: an event a line, for each request one or two.
func parseRequests(r io.Reader) (out []Request, err error) {
	seen := map[string]bool{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil // what has no end of line is being written
		}
		if err != nil {
			return nil, err
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if seen[e.AuditID] {
			continue
		}
		seen[e.AuditID] = true
		u, err := url.ParseRequestURI(e.RequestURI)
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		out = append(out, request(e, u.Query()))
	}
}

func request(e auditEvent, query url.Values) Request {
	q := Request{Agent: e.UserAgent, Resource: e.ObjectRef.Resource, Code: e.ResponseStatus.Code, Received: e.Received, How: List}
	switch {
	case query.Get("watch") != "" && query.Get("sendInitialEvents") == "true":
		q.How = Stream
	case query.Get("watch") != "":
		q.How = Resume
	case query.Get("limit") == "1":
		q.How = Count
	}
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		q.Timeout = time.Duration(seconds) * time.Second
	}
	return q
}

// String is how a table names it.
func (q Request) String() string { return strings.Join([]string{q.How, q.Resource}, " ") }
