// Package catalog holds the latest of everything the sources have told, joins
// slices to their services, lists the services that changed, and knows whether
// every source has told all.
//
// Sources call it as their Sink, from any goroutine. The agent waits on Wake and
// takes a Batch. The catalog decides nothing about addresses or backends and never
// looks back at a source.
//
//	sources ──Set, Delete, State──► Catalog ──Wake, Take, TakeReady──► agent
//
// The laws kept here: only Take, and TakeReady before the sources are in sync, empty the dirty set.
// A change to an equal value is no change. The cost of a change depends on the objects that it
// affects, never on the number of services.
package catalog
