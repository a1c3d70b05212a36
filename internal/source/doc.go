// Package source defines the interface between an input and the agent: a Sink to call, a State
// to declare, and one conversion of API objects into the words of model.
//
// Readers of objects (informers, files) pass them to Service, Slice and Node and give the result to
// a Sink. It knows nothing of plans or kernels.
//
//	v1.Service, EndpointSlice, Node ──► conversion ──► Sink (the catalog)
//
// The law kept here: conversion never fails. A field that cannot be used is
// named in Problems with its path ("spec.ports[1].port: 70000 is not a port
// (1-65535)") and left out; everything else of the object works. Objects from a
// file have passed no API server, so nothing that validation guarantees there is
// taken for granted. One thing is not merely left out: source ranges that cannot
// be used take the load-balancer addresses with them, for an empty list would
// admit everybody.
package source
