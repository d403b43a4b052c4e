// Package browsertest looks at the operator's page in a headless Chromium: three processes on a
// real store, each page in light and dark, narrow and wide, updates of a page that is open, and the
// actions of an operator. It has only tests, and is a module of its own, so that users of the
// library do not download a browser driver.
package browsertest
