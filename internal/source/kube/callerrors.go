package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is why calls to the API server fail, in one word for labels and status.
type Reason string

// The reasons that are distinguished, because the remedies differ.
const (
	Unauthorized Reason = "Unauthorized" // it does not know us
	Forbidden    Reason = "Forbidden"    // it knows us, and the ClusterRole lacks something
	Certificate  Reason = "Certificate"  // we do not trust it
	Refused      Reason = "Refused"      // nothing listens there
	NoRoute      Reason = "NoRoute"      // the kernel knows no way
	Unresolved   Reason = "Unresolved"   // its name has no address
	Timeout      Reason = "Timeout"      // it does not answer, or no more
	Busy         Reason = "Busy"         // 429: it asks us to wait
	ServerError  Reason = "ServerError"  // 5xx
	NotAPI       Reason = "NotAPI"       // the server is no Kubernetes API
	Other        Reason = "Other"
)

// callError describes a failed call for the person who has to repair it.
type callError struct {
	verb, kind      string
	problem, remedy string
	cause           error
}

func (e *callError) Error() string {
	cause := cmp.Or(e.cause.Error(), "an error without a message")
	text := fmt.Sprintf("%s %s: %s: %s", e.verb, e.kind, e.problem, cause)
	if e.remedy != "" {
		text += "; " + e.remedy
	}
	return text
}

func (e *callError) Unwrap() error { return e.cause }

// causes are tried in this order; a certificate error is also a network error.
var causes = []struct {
	reason          Reason
	is              func(error) bool
	problem, remedy string
}{
	{Unauthorized, apierrors.IsUnauthorized, "the API server refuses our credentials", "is the token expired, or one of another cluster?"},
	{Unauthorized, missingToken, "the token cannot be read", "is the file still there, and not empty?"},
	{Unauthorized, clientCertRejected, "the API server refuses our certificate", "is it expired, or one of another cluster?"},
	{Forbidden, apierrors.IsForbidden, "the API server does not allow it", "the ClusterRole of this agent lacks the verb %[1]s for %[2]s, or its binding is missing"},
	{Certificate, untrusted, "the API server shows a certificate that is not trusted", "is the CA in use the one of this cluster, is the server's name right, and the clock?"},
	{NotAPI, plainHTTP, "the server does not speak TLS", "is its URL http:// instead of https://, or is a proxy in between?"},
	{Unresolved, as[*net.DNSError], "the name of the API server cannot be resolved", "does the resolver of this node work? An address instead of a name needs none"},
	{Refused, among(syscall.ECONNREFUSED), "nothing listens at the address of the API server", "is it running there?"},
	{NoRoute, among(syscall.ENETUNREACH, syscall.EHOSTUNREACH), "no route to the API server", "is the network of this node up, and the address right?"},
	{Busy, apierrors.IsTooManyRequests, "the API server is busy", ""},
	{Timeout, silent, "the API server does not answer", "is it running, or a firewall in between?"},
	{Timeout, connectionBroken, "the connection to the API server broke", ""},
	{NotAPI, undecodable, "the server does not answer like a Kubernetes API server", "is the server's URL right, or a proxy in between?"},
	{ServerError, status(http.StatusInternalServerError, 599), "the API server reports an internal error", "its log says why"},
	{NotAPI, status(http.StatusMultipleChoices, http.StatusInternalServerError-1), "the API server rejects the request", "is the server's URL right, and is it Kubernetes 1.21 or later?"},
	{NotAPI, unreadable, "the server does not answer like a Kubernetes API server", "is the server's URL right, or a proxy in between?"},
	{NotAPI, unexpectedErrorObject, "the server does not answer like a Kubernetes API server", "is the server's URL right, or a proxy in between?"},
	{Other, func(error) bool { return true }, "the call failed", ""},
}

// explain returns the reason of a failed call, and an error with a remedy that wraps
// the one that client-go returned.
func explain(verb, kind string, err error) (Reason, error) {
	for _, c := range causes {
		if !c.is(err) {
			continue
		}
		remedy := c.remedy
		if strings.Contains(remedy, "%[") {
			remedy = fmt.Sprintf(remedy, verb, kind)
		}
		if (c.reason == Timeout || c.reason == Refused || c.reason == NoRoute) && byClusterIP(err) {
			remedy = "its address is a cluster IP, which works only once this agent, or another proxy, serves it: give --master or a kubeconfig with the address of the machine"
		}
		return c.reason, &callError{verb: verb, kind: kind, problem: c.problem, remedy: remedy, cause: err}
	}
	return Other, err
}

// byClusterIP reports whether the call went to the cluster IP of the API server, which pods use.
func byClusterIP(err error) bool {
	var call *url.Error
	if !errors.As(err, &call) {
		return false
	}
	u, parse := url.Parse(call.URL)
	host := os.Getenv("KUBERNETES_SERVICE_HOST")
	return parse == nil && host != "" && u.Hostname() == host
}

func as[E error](err error) bool {
	var want E
	return errors.As(err, &want)
}

func among(list ...syscall.Errno) func(error) bool {
	return func(err error) bool {
		for _, e := range list {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
}

func status(low, high int32) func(error) bool {
	return func(err error) bool {
		var api apierrors.APIStatus
		if !errors.As(err, &api) {
			return false
		}
		code := api.Status().Code
		return code >= low && code <= high
	}
}

func untrusted(err error) bool {
	return as[*tls.CertificateVerificationError](err) || as[x509.UnknownAuthorityError](err) || as[x509.HostnameError](err) ||
		as[x509.CertificateInvalidError](err)
}

// missingToken reports whether the token file cannot be used; client-go has no type for that.
func missingToken(err error) bool {
	return strings.Contains(err.Error(), "token file") || strings.Contains(err.Error(), "empty token from file")
}

// clientCertRejected reports whether the server ended the handshake; crypto/tls has no type for an
// alert of the peer.
func clientCertRejected(err error) bool {
	return strings.Contains(err.Error(), "remote error: tls: ")
}

func plainHTTP(err error) bool {
	return as[tls.RecordHeaderError](err) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// unreadable reports whether an answer could not be decoded; apimachinery has no types for that.
func unreadable(err error) bool {
	if errors.Is(err, errUnexpectedObject) {
		return true
	}
	for _, text := range []string{"couldn't get version/kind", "unable to decode", "no kind ", "serializer", "malformed HTTP", "0-length response", "does not appear to be a protobuf message", "illegal tag", "illegal wireType", "proto: ", "unexpected EOF", "json: cannot unmarshal", "gzip: ", errTooLarge.Error()} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// unexpectedErrorObject reports whether an event of type ERROR has an object that is not an error.
func unexpectedErrorObject(err error) bool {
	return as[*apierrors.UnexpectedObjectError](err) || status(0, http.StatusMultipleChoices-1)(err)
}

// undecodable: client-go makes an internal error of a server of what it cannot read
// in a watch, connections that break included.
func undecodable(err error) bool {
	return inStream(err) && !connectionBroken(err)
}

func inStream(err error) bool {
	return strings.Contains(err.Error(), "unable to decode an event from the watch stream")
}

// connectionBroken reports whether a connection broke: of TCP, of HTTP/2 as a whole, or one of its
// streams. A watch has these errors as text alone.
func connectionBroken(err error) bool {
	if errors.Is(err, errTruncated) || among(syscall.ECONNRESET, syscall.EPIPE)(err) {
		return true
	}
	if as[*url.Error](err) && errors.Is(err, io.EOF) {
		return true // closed before an answer, as by a load balancer without a server behind it
	}
	text := err.Error()
	return inStream(err) && strings.Contains(text, "connection") || (inStream(err) || as[*url.Error](err)) && strings.Contains(text, "stream error: ")
}

// unanswered reports whether an error is no answer of a server, so that it shows nothing about what
// the server supports.
func unanswered(err error) bool { return connectionBroken(err) || as[*url.Error](err) }

// unreached reports whether a connection could not be established.
func unreached(err error) bool {
	var call *net.OpError
	return errors.As(err, &call) && call.Op == "dial"
}

func silent(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errIdle) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		errors.As(err, &network) && network.Timeout() || strings.Contains(err.Error(), "http2: client connection lost")
}

// outdated reports whether the server no longer has the requested version, or does not have it yet
// after a restore. That is no failure: the next request asks for another version.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// unstreamed reports whether a server does not stream lists: a plain list follows at once, and shows
// whether anything is wrong.
func unstreamed(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}
