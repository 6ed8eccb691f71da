import type { Command } from 'commander';
import type { Context } from './context.ts';
import type { Globals } from './globals.ts';
import type { Outcome } from './output/outcome.ts';

/** What a command does once its flags are read. */
export type Action = (context: Context) => Promise<Outcome | undefined>;

/** Runs an action in a context with the global flags; given to every command when it is registered. */
export type Act = (globals: Globals, action: Action) => Promise<void>;

/** Hands a parsed command over to be run. */
export type Run = (command: Command, action: Action) => Promise<void>;

/** Adds a command (or a group of them) to the program. */
export type Register = (parent: Command, run: Run) => void;
