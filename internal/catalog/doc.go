// Package catalog holds the latest of everything the sources have told, joins
// slices to their services, remembers which services changed, and knows whether
// every source has told all.
//
// Sources call it as their Sink, from any goroutine. The agent waits on Wake and
// takes a Batch. The catalog decides nothing about addresses or backends and never
// looks back at a source.
//
//	sources ──Set, Delete, State──► Catalog ──Wake, Take, TakeReady──► agent
//
// The laws kept here: only Take empties, and TakeReady before the sources are in sync; a change that changes nothing (Equal)
// is none; the cost of a change depends on what it touches, never on how many
// services there are.
package catalog
