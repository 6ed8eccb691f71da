import { Option, type Command } from 'commander';
import { repeatable, single } from './options.ts';

/** The flags that every command takes (design 1), and those of single commands that are settings too. */
export interface Globals {
  profile?: string;
  baseUrl?: string;
  sandbox?: boolean;
  json?: boolean;
  /** `--fields`: the members to keep of the JSON document; implies `json`. */
  fields?: string[];
  quiet?: boolean;
  verbose?: boolean;
  color?: boolean;
  input?: boolean;
  allowHttp?: boolean;
  trustOrigin?: string[];
  /** Flags of waiting, if the command has them. */
  timeout?: string;
  pollInterval?: string;
  requestTimeout?: string;
  retries?: string;
  /** Flags of commands that wait. */
  notify?: boolean;
  open?: boolean;
  /** `--budget-name` of what pays. */
  budgetName?: string;
  /** `--speaker` of `mgw tts`. */
  speaker?: string;
}

/** Adds the global flags to the program; commander finds them before and after any subcommand. */
export function addGlobals(program: Command): Command {
  return program
    .addOption(single('--profile <name>', 'profile of the config file to use'))
    .addOption(single('--base-url <url>', 'address of the gateway, without /v1'))
    .option('--sandbox', 'use the built-in sandbox gateway: offline and free')
    .option('--json', 'print one JSON document on stdout, also on failure')
    .addOption(
      single('--fields <names>', 'the members to keep of the JSON document, such as id,state', fieldNames),
    )
    .option('-q, --quiet', 'print nothing on stderr but errors')
    .option('-v, --verbose', 'show each call on stderr (the key redacted)')
    .addOption(new Option('--no-color', 'no colours'))
    .addOption(new Option('--no-input', 'never ask for anything'))
    .option('--allow-http', 'accept an http:// base URL that is not loopback')
    .addOption(repeatable('--trust-origin <origin>', 'send the key to result addresses of this origin too'));
}

function fieldNames(text: string): string[] {
  const names = text.split(',');
  if (names.every((name) => /^\w+$/.test(name))) return names;
  throw new Error('names separated by commas, such as id,state,files');
}
