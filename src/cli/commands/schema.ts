import type { Command } from 'commander';
import type { $ZodType } from 'zod/v4/core';
import type { JsonObject } from '../../json.ts';
import type { Protocol } from '../../protocols/protocol.ts';
import { protocols } from '../../protocols/registry.ts';
import type { Run } from '../command-tree.ts';

/**
 * `mgw schema video PROTOCOL | tts | batch`: prints the JSON Schema of a body or a manifest. The local checks use the
 * same schemas.
 */
export function registerSchema(schema: Command, run: Run): void {
  const add = (command: Command, make: () => Promise<JsonObject>): void => {
    const path = `mgw schema ${command.parent === schema ? '' : 'video '}${command.name()}`;
    command.addHelpText('after', `\nExamples:\n  $ ${path}\n  $ ${path} > schema.json\n  $ ${path} --json`);
    command.action(() => run(command, async () => outcomeOf(await make())));
  };
  const video = schema.command('video').description('print the schema of a video body');
  for (const protocol of Object.values<Protocol>(protocols))
    add(
      video
        .command(protocol.name)
        .description(`print the schema of a Protocol ${protocol.name.toUpperCase()} body`),
      async () => asJsonSchema((await protocol.checks()).schema),
    );
  add(schema.command('tts').description('print the schema of a speech body'), speechSchema);
  add(
    schema
      .command('batch')
      .description('print the schema of a YAML manifest; for a line of JSON Lines, use $defs.row'),
    manifestSchema,
  );
}

function outcomeOf(schema: JsonObject): { json: Record<string, unknown>; text: string } {
  return { json: { schema }, text: JSON.stringify(schema, undefined, 2) };
}

async function speechSchema(): Promise<JsonObject> {
  return asJsonSchema((await import('../../speech/compose.ts')).schema);
}

async function asJsonSchema(schema: $ZodType): Promise<JsonObject> {
  const { toJSONSchema } = await import('zod/v4/core');
  return toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as unknown as JsonObject;
}

async function manifestSchema(): Promise<JsonObject> {
  return (await import('../../batch/manifest/schema.ts')).manifestJsonSchema();
}
