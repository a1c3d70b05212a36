// Package dataplane defines a mode and keeps the law of order between its
// tables.
//
// A mode lists its stages once, bottom up: rows for return traffic first,
// what attracts traffic last. Updates run down that list, deletions run it
// backwards:
//
//	updates     sets -> members -> chains -> jumps -> servers -> destinations -> routes -> addresses
//	deletions   sets <- members <- chains <- jumps <- servers <- destinations <- routes <- addresses
//
// Between the updates of two stages the first may publish what it has made, when the
// second has put into it what belongs there (Publisher).
//
// So nothing attracts traffic before its way back exists, and nothing is removed
// while something refers to it. A failed row does not stop its neighbours; a row
// waits for the rows that it needs itself.
//
// Frontends settles, for all modes alike, which Service keeps an address that
// two of them want.
//
// This package knows no kernel subsystem and does no I/O of its own.
package dataplane
