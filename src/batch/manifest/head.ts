import * as z from 'zod/mini';
import { shownValue } from '../../protocols/violations.ts';
import { nameHint } from './fields.ts';
import type { Problem, WrittenField } from './record.ts';
import { headSchema, manifestNames } from './schema.ts';

/** The members of a YAML manifest besides its rows. */
export interface Head {
  name?: string;
  output?: string;
  concurrency?: string;
  /** An amount in plain digits. */
  budget?: string;
}

/** Reads the head of a manifest. Reports what is wrong and leaves it out. */
export function readHead(fields: readonly WrittenField[], report: (problem: Problem) => void): Head {
  const head: Record<string, unknown> = {};
  for (const { name, value, line } of fields) {
    if (value === null) continue;
    const result = z.safeParse(headSchema, { [name]: value });
    if (result.success) Object.assign(head, result.data);
    else if (!manifestNames.includes(name)) report({ line, message: unknownName(name) });
    else
      report({
        line,
        field: name,
        message: `${shownValue(value)} is not allowed; allowed: ${result.error.issues[0]?.message ?? ''}`,
      });
  }
  return head;
}

function unknownName(name: string): string {
  return `a manifest has no ${shownValue(name)}; ${nameHint(name, manifestNames)}`;
}
