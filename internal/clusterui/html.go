package clusterui

import (
	"bytes"
	"html"
)

// A writer writes HTML. All texts and values of attributes are escaped. It replaces html/template,
// whose use of reflection would keep every method in the program, some megabytes of it.
type writer struct{ bytes.Buffer }

// attributes are names and values in turn; a name with the value "" is a switch.
type attributes []string

// el writes an element with what body writes in it; nil is an element without an end, such as meta.
func (w *writer) el(tag string, a attributes, body func()) {
	w.WriteString("<" + tag)
	for i := 0; i+1 < len(a); i += 2 {
		w.WriteString(" " + a[i])
		if a[i+1] != "" {
			w.WriteString(`="` + html.EscapeString(a[i+1]) + `"`)
		}
	}
	w.WriteString(">")
	if body == nil {
		return
	}
	body()
	w.WriteString("</" + tag + ">")
}

// text writes an element with a text.
func (w *writer) text(tag string, a attributes, text string) {
	w.el(tag, a, func() { w.say(text) })
}

// say writes a text.
func (w *writer) say(text string) { w.WriteString(html.EscapeString(text)) }

// list writes a list with an item for each call of item.
func (w *writer) list(a attributes, n int, item func(i int)) {
	w.el("ul", a, func() {
		for i := range n {
			w.el("li", nil, func() { item(i) })
			w.WriteString("\n")
		}
	})
}

// table writes a table in a region that scrolls, and that the keyboard reaches. cells writes those of a row.
func (w *writer) table(id, label, caption string, headings func(), rows int, cells func(i int)) {
	w.el("div", attributes{"class", "scroll", "role", "region", "aria-label", label, "tabindex", "0"}, func() {
		w.el("table", attributes{"id", id}, func() {
			w.text("caption", nil, caption)
			w.el("thead", nil, func() { w.el("tr", nil, headings) })
			w.el("tbody", nil, func() {
				for i := range rows {
					w.el("tr", nil, func() { cells(i) })
					w.WriteString("\n")
				}
			})
		})
	})
}

// head writes the beginning of a page.
func (w *writer) head(title string) {
	w.WriteString("<!doctype html>\n")
	w.WriteString(`<html lang="en">` + "\n")
	w.el("head", nil, func() {
		w.el("meta", attributes{"charset", "utf-8"}, nil)
		w.el("meta", attributes{"name", "viewport", "content", "width=device-width, initial-scale=1"}, nil)
		w.text("title", nil, title)
		w.el("link", attributes{"rel", "stylesheet", "href", "page.css"}, nil)
		w.el("script", attributes{"src", "page.js", "defer", ""}, func() {})
	})
	w.WriteString("\n")
}

// section writes a part of a page below a heading.
func (w *writer) section(id, heading string, body func()) {
	w.el("section", attributes{"aria-labelledby", id}, func() {
		w.text("h2", attributes{"id", id}, heading)
		body()
	})
	w.WriteString("\n")
}
