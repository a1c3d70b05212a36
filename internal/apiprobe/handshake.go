package apiprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// Handshake connects to an endpoint and completes a TLS handshake. It returns nil if the endpoint
// answers, and an error that wraps errLocal if this machine could not ask.
//
// Any answer counts, also an alert, or one in plain text: a process that answers is alive. The
// certificate is not verified, because nothing depends on it. The probe sends no request and no
// credential, and an answer by another process only leaves a backend as it would be without probes.
func Handshake(ctx context.Context, to netip.AddrPort) error {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return connectError(ctx, err)
	}
	defer conn.Close()
	heard := &listening{Conn: conn}
	client := tls.Client(heard, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	err = client.HandshakeContext(ctx)
	switch {
	case err == nil:
		return nil
	case heard.bytes > 0 && !brokeOff(ctx, err):
		return nil
	case timedOut(ctx, err):
		return errors.New("it accepts connections, and does not answer a TLS handshake in time")
	case brokeOff(ctx, err):
		return errors.New("it closes connections without an answer")
	}
	return fmt.Errorf("TLS handshake: %w", cause(err))
}

// listening counts what the peer sends.
type listening struct {
	net.Conn
	bytes int
}

func (l *listening) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.bytes += n
	return n, err
}

// brokeOff reports whether a handshake ended for want of an answer, and not by what the answer was.
func brokeOff(ctx context.Context, err error) bool {
	return timedOut(ctx, err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func timedOut(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// errLocal is the error of a probe that this machine could not make: it proves nothing about the
// endpoint.
var errLocal = errors.New("this machine cannot probe")

// connectError returns the error of a connection that was not made. Its text has no port of this
// machine, so that it is the same for every probe.
func connectError(ctx context.Context, err error) error {
	for _, own := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EPERM, syscall.EACCES, syscall.EAFNOSUPPORT,
	} {
		if errors.Is(err, own) {
			return fmt.Errorf("%w: %w", errLocal, own)
		}
	}
	if timedOut(ctx, err) || errors.Is(err, syscall.ETIMEDOUT) {
		return errors.New("it does not accept a connection in time")
	}
	return cause(err)
}

// cause returns the error of the system call inside of an error of package net, without the
// addresses around it.
func cause(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}
