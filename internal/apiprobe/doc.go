// Package apiprobe probes the endpoints of the Service default/kubernetes, the API servers, so that
// one that hangs gets no new connections of this node.
//
// It knows addresses and answers. The agent names the endpoints, and plan decides what a
// failing one means (internal/DECISIONS.md, Probes of API servers).
//
//	loop ──Want──▶ Run ──▶ one probe an endpoint at a time ──▶ record ──▶ Changed ──▶ loop
//
// A probe connects to the endpoint itself, never to a cluster IP, and completes a TLS handshake. It
// sends no request, no name and no credential.
//
// The laws it keeps: Want never waits. An endpoint fails after three failed probes in a row, and
// holds again after two that succeed. An error of this machine itself, such as a lack of file
// descriptors, counts as neither. At most MaxEndpoints are probed. No probe runs when Run returns.
package apiprobe
