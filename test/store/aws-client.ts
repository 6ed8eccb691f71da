import { S3Client } from '@aws-sdk/client-s3';
import type { account } from './s3-server.ts';

// Tests also run with versions of Node that later versions of the SDK no longer support.
process.env['AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED'] = 'true';

/** The AWS SDK as a client of a store, which signs, encodes and reads with its own code. */
export function awsClient(endpoint: string, own: typeof account): S3Client {
  return new S3Client({
    endpoint,
    forcePathStyle: true,
    region: 'us-east-1',
    maxAttempts: 1,
    credentials: { accessKeyId: own.AWS_ACCESS_KEY_ID, secretAccessKey: own.AWS_SECRET_ACCESS_KEY },
  });
}
