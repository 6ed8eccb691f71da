import { usageError } from '../../errors.ts';
import { readPackageFile } from '../../installation.ts';

/** A topic of `mgw help`: a page of the documentation in the package. */
export interface Topic {
  name: string;
  about: string;
  /** Its file in `docs/`. */
  page: string;
}

/** In the order of the help. */
export const topics: readonly Topic[] = [
  topic('resuming', 'the same command again; what to do when an answer was lost'),
  topic('scripting', 'lines that are safe to run again'),
  topic('batch', 'many jobs from one file', 'batches'),
  topic('fleet', 'one batch on many machines: a shared ledger, a queue and its workers'),
  topic('budgets', 'what may be spent, and how it is counted'),
  topic('sandbox', 'a gateway to try and test with'),
  topic('agents', 'let an agent make videos and speech, under a budget'),
  topic('refs', 'how a job is named'),
  topic('output', 'what is on stdout, and what --json prints'),
  topic('exit-codes', 'what the exit codes mean'),
  topic('environment', 'variables, profiles and the config file'),
];

function topic(name: string, about: string, page = name): Topic {
  return { name, about, page: `${page}.md` };
}

/**
 * Reads a file of the package's documentation.
 * @param page its path below `docs/`
 * @throws MgwError('usage') if there is no such file.
 */
export async function readPage(page: string): Promise<string> {
  return readPackageFile(`docs/${page}`).catch(() => {
    throw usageError(`There is no page ${page} in the documentation.`, ['mgw', 'help']);
  });
}
