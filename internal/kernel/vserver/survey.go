package vserver

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// survey is a reading of the kernel's list in pieces. The file stays open from one survey to the
// next. The kernel enlarges the buffer of an open file once a server does not fit, and then reads
// more servers at a time (seq_read_iter, fs/seq_file.c).
type survey struct {
	file  io.ReadCloser
	list  list
	drawn digester
	begun bool
}

var errNoSurvey = errors.New("no list was started")

// BeginSurvey begins to read the list of all virtual servers and their destinations, and
// gives up a reading that is in progress. Where the kernel's list cannot be opened it
// fails with ErrUnsupported or fs.ErrPermission.
func (h *Handle) BeginSurvey(ctx context.Context) error {
	if err := h.survey.begin(ctx, h); err != nil {
		return fmt.Errorf("begin a survey of servers: %w", err)
	}
	return nil
}

func (s *survey) begin(ctx context.Context, h *Handle) (err error) {
	if !s.rewind(ctx, h) {
		s.end()
		if s.file, err = h.openList(ctx); err != nil {
			s.file = nil
			return err
		}
		s.list.buf = make([]byte, listBuffer)
	}
	h.count.Dumps++
	s.drawn = digester{names: s.drawn.names}
	s.list = list{rows: &s.drawn, buf: s.list.buf}
	s.begun = true
	return nil
}

// rewind goes back to the start of the file. One whose module was unloaded since does not.
func (s *survey) rewind(ctx context.Context, h *Handle) bool {
	file, ok := s.file.(io.Seeker)
	if !ok || ctx.Err() != nil || h.free() != nil {
		return false
	}
	_, err := bounded(ctx, h, func() (int64, error) { return file.Seek(0, io.SeekStart) })
	return err == nil
}

// end gives up the file, and with it the buffer an abandoned read may use.
func (s *survey) end() {
	if s.file != nil {
		letGo(s.file)
	}
	*s = survey{}
}

// Survey reads the next piece, 64 KiB at most, and shows the servers that end in it. After
// the last piece, and after an error, the survey is over; a list that cannot be understood
// is an error. Visit must not use the Handle.
//
// The result is only a hint. The kernel resumes its list by counting servers (ip_vs_info_array). So
// each server that is added or deleted meanwhile makes it skip another one or list it twice, and so
// may the servers of other network namespaces (see Handle.Count). A caller that needs the truth
// reads the server itself.
func (h *Handle) Survey(ctx context.Context, visit func(ServerKey, Digest)) (done bool, err error) {
	s := &h.survey
	switch {
	case !s.begun:
		err = errNoSurvey
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		if err = h.free(); err == nil {
			s.drawn.visit, s.drawn.ask = visit, h.asker(ctx)
			done, err = s.list.piece(h.fill(ctx, s.file))
		}
	}
	if err != nil {
		s.end()
		return false, fmt.Errorf("survey servers: %w", err)
	}
	if done {
		s.drawn.close()
		s.begun = false
		h.servers = s.list.servers
	}
	return done, nil
}

// asker reads one server exactly.
func (h *Handle) asker(ctx context.Context) func(ServerKey) (Server, bool, error) {
	return func(k ServerKey) (Server, bool, error) {
		found, err := h.GetServers(ctx, []ServerKey{k})
		s, there := found[k]
		return s, there, err
	}
}
