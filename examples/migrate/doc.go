// Package migrate is the code of the pages in docs/migrate: a program for another scheduler, and
// its equivalent with tickslot. It is a separate module, so that no other package links those
// schedulers. The pages quote its functions word for word.
package migrate
