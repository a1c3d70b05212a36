// Package podexec finds the pods of agents and runs verbs in them by the exec of the API server,
// over WebSocket, or SPDY where a server is old. It needs the rights to list pods and to create
// pods/exec. Names, lists and outputs of the cluster are bounded.
package podexec
