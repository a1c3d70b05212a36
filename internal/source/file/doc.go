// Package file feeds a Sink from manifests on disk: a directory of YAML and JSON
// files, or one file, with the same API objects that kubectl reads and writes.
//
// It knows files and API types. It does not know how the objects are used.
//
//	scan ──► read ──► split ──► decode strictly ──► registry ──► Sink
//	  ▲        (only files that changed)              (only differences)
//	fsnotify, slow poll
//
// The laws kept here:
//   - A file is good or bad as a whole. While it is bad its last good content
//     stays in force, and the other files go on.
//   - An empty file is a bad one: that is how a file looks that is about to be
//     written, and its objects must not go for that moment.
//   - An object is deleted because its file went or no longer has it, never
//     because something could not be read.
//   - Of two files that define one object the first by name wins.
//   - What is wrong is said once per change of content, with file, document,
//     line and field.
package file
