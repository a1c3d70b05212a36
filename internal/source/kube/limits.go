package kube

import "time"

// How long an API server may be silent. HTTP/2 pings notice a dead connection and a process that
// hangs within 45 s. These limits are for connections without pings, and for a server that keeps
// the connection and sends nothing.
const (
	// listTimeout ends a list. The server itself ends it after one minute, unless its
	// --request-timeout is another.
	listTimeout = 2 * time.Minute
	// watchIdleTimeout ends a watch without an event and without a bookmark, of which a server
	// sends one a minute. It is the shortest life that client-go asks for a watch, so that a
	// server without bookmarks gets hardly more requests. The list that follows is useful: a
	// server that was restored from a backup never sends anything to a watch from a later
	// resource version.
	watchIdleTimeout = 5 * time.Minute
	// shortWatch is the longest life of a watch that a proxy between us and the server ended
	// (client-go has the same limit).
	shortWatch = time.Second
)

// priorityListLimit is how long the large lists wait for two others: the list of Nodes, which is
// small and needed to serve anything, and the kubernetes Service. Next to two large lists these
// would arrive late. A healthy server needs a part of it for the 10 MB of DefaultManyNodes. A
// server that is slow, or refuses, makes the start longer by this time.
const priorityListLimit = 2 * time.Second

// streamTries is how many streamed lists in a row may break off before the agent asks for a plain
// list. Two can be the same server that goes away twice, as in an update; a third hardly can.
const streamTries = 3

// The bytes read of an answer before an object is decoded. The limit of an event is that of
// client-go for protobuf; etcd takes objects of 1.5 MB at most. A list has 50 MB for 10,000
// slices of 100 endpoints, and twice that for 5,000 Nodes or in JSON.
const (
	maxEventBytes = 16 << 20
	maxListBytes  = 512 << 20
)

// logRepeatInterval is the least time between two log lines about the same reason of a failure.
const logRepeatInterval = 5 * time.Minute
